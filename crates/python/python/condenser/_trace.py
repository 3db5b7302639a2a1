"""Reading recorded traces."""

from __future__ import annotations

from typing import Optional

from ._native import ReadError, Trace, read_traces
from ._types import StrPath


def read_trace(path: StrPath, *, format: Optional[str] = None) -> Trace:
    """Reads a file or folder that holds one trace. `ReadError` where it holds several, or none."""
    traces = read_traces(path, format=format)
    if len(traces) != 1:
        raise ReadError(f"{path}: {len(traces)} traces and not one; `read_traces` gives them all")
    return traces[0]
