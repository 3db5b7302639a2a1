"""Comparisons of policies on recorded traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Optional, Union, cast, overload

from . import _native
from ._native import InvalidInput, Trace
from ._types import AnyPolicy, Row, Rules, StrPath, Summarizer

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

CONTROLS = ("random-masking", "random-forgetting", "forget-all", "oracle", "recorded")
"""Yardsticks that `compare` takes beside policies."""


class Comparison(Sequence[Row]):
    """The rows of a comparison: one for each trace, window, policy and seed."""

    def __init__(self, rows: Iterable[Row], profile: str = "reference") -> None:
        self._rows = list(rows)
        self._profile = profile

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> "Comparison": ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Row, "Comparison"]:
        if isinstance(index, slice):
            return Comparison(self._rows[index], self._profile)
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparison) and self._rows == other._rows

    def __repr__(self) -> str:
        policies = len({row["policy"] for row in self._rows})
        return f"Comparison({len(self._rows)} rows, {policies} policies)"

    def __str__(self) -> str:
        return self.table()

    def means(self) -> list[dict[str, Any]]:
        """Means over the traces, one entry per policy."""
        return _native.means(self._rows, self._profile)

    def table(self) -> str:
        """The means as a table of text. Windows are not told apart: take the rows of one."""
        head = ["policy", "fired on", "peak", "input", "cached", "$ discount", "$ profile", "in view", "+ summary",
                "recoverable", "far in view", "over", "invalid"]  # fmt: skip

        def share(value: Optional[float]) -> str:
            return "–" if value is None else f"{value:.0%}"

        def dollars(value: Optional[float]) -> str:
            return "–" if value is None else f"{value:.3f}"

        lines = [head]
        for mean in self.means():
            lines.append(
                [
                    mean["policy"],
                    f"{mean['fired']} of {mean['traces']}",
                    f"{mean['peak_tokens']:.0f}",
                    f"{mean['input_tokens']:.0f}",
                    share(mean["cached_share"]),
                    dollars(mean["cost_discount"]),
                    dollars(mean["cost_usd"]),
                    share(mean["in_view"]),
                    share(mean["in_view_or_summary"]),
                    share(mean["recoverable"]),
                    share(mean["far_in_view"]),
                    str(mean["over_window_steps"]),
                    str(mean["invalid_requests"]),
                ]
            )
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths))
            ).rstrip()
            for line in lines
        )

    def to_arrow(self) -> "pyarrow.Table":
        """The rows as an Arrow table. Needs `pyarrow`."""
        import pyarrow

        return pyarrow.Table.from_pylist(cast("list[dict[str, Any]]", self._rows), schema=arrow_schema())

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a pandas data frame. Needs `pandas`."""
        import pandas

        return pandas.DataFrame(self._rows, columns=list(Row.__annotations__))

    def to_polars(self) -> "polars.DataFrame":
        """The rows as a polars data frame. Needs `polars`."""
        import polars

        kinds = {"str": polars.String, "int": polars.Int64, "float": polars.Float64}
        schema = {name: kinds[kind] for name, kind in _columns()}
        return polars.DataFrame([dict(row) for row in self._rows], schema=schema)


def _columns() -> Iterator[tuple[str, str]]:
    """The columns of a row, each with `str`, `int` or `float`."""
    for name, annotation in Row.__annotations__.items():
        text = getattr(annotation, "__forward_arg__", str(annotation))
        yield name, next(kind for kind in ("str", "int", "float") if kind in text)


def arrow_schema() -> "pyarrow.Schema":
    """The schema of rows. Needs `pyarrow`."""
    import pyarrow

    kinds = {"str": pyarrow.string(), "int": pyarrow.int64(), "float": pyarrow.float64()}
    return pyarrow.schema([pyarrow.field(name, kinds[kind]) for name, kind in _columns()])


def compare(
    traces: Union[Trace, StrPath, Iterable[Union[Trace, StrPath]]],
    policies: Iterable[AnyPolicy],
    *,
    window: Union[int, Iterable[int]] = 32_000,
    reserve: int = 4_000,
    tokenizer: str = "o200k",
    profile: str = "reference",
    summarizer: Summarizer = "extractive",
    rules: Rules = "sound",
    recall: bool = True,
    seeds: int = 1,
    jobs: int = 0,
) -> Comparison:
    """Replays traces under policies and measures what each one costs and what it loses.

    Replay holds the recorded actions fixed: rows say what the recorded agent would have been shown and what that would
    have cost, not whether it would still have solved its task.

    `traces` are traces or paths. `policies` are names, `Policy` objects, objects of your own (see `PolicyLike`), and
    the controls `random-masking`, `random-forgetting`, `forget-all`, `oracle` and `recorded`; two of one name are refused.
    Numbers are tokens. `seeds` is how many seeds random controls run under, `jobs` how many threads work; 0 is all
    processors. An exception of a policy or summarizer written in Python ends the comparison.
    """
    of_traces: list[Trace] = []
    for trace in [traces] if isinstance(traces, (Trace, str, PathLike)) else traces:
        of_traces.extend([trace] if isinstance(trace, Trace) else _native.read_traces(fspath(trace)))
    chosen = list(policies)
    names = [policy if isinstance(policy, str) else policy.name for policy in chosen]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"two policies are named {name!r}; rows could not be told apart")
    rows = _native.compare(
        of_traces,
        chosen,
        windows=[window] if isinstance(window, int) else list(window),
        reserve=reserve,
        tokenizer=tokenizer,
        profile=profile,
        summarizer=summarizer,
        rules=rules,
        recall=recall,
        seeds=seeds,
        jobs=jobs,
    )
    return Comparison(rows, profile)
