"""What the tests with the OpenHands SDK share."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("ALLOW_SHORT_CONTEXT_WINDOWS", "True")
pytest.importorskip("openhands.sdk", reason="the OpenHands SDK is not installed here")

logging.disable(logging.WARNING)

ROOT = Path(__file__).resolve().parents[4]
SHARED = Path(os.environ.get("CONDENSER_SHARED") or ROOT / ".." / "shared")
HERE = ROOT / "fixtures" / "conformance" / "openhands"


def cases(suite: str) -> Iterator[dict[str, Any]]:
    """The recorded inputs of a suite: all of them where they are at hand, else those of the repository."""
    for folder in (SHARED / "conformance" / "openhands", HERE):
        file = folder / f"{suite}.jsonl"
        if file.is_file():
            with file.open(encoding="utf-8") as lines:
                yield from map(json.loads, lines)
            return
    pytest.skip(f"no recorded cases of {suite}: neither in CONDENSER_SHARED nor in the repository")
