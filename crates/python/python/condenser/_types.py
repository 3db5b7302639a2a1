"""Types that exist for readers and type checkers."""

from __future__ import annotations

from os import PathLike
from typing import Any, Awaitable, Callable, Literal, Optional, Protocol, Tuple, TypedDict, Union

from ._native import Plan, Policy, State, Summary, SummaryRequest

Rules = Literal["sound", "openhands"]
Api = Literal["openai", "responses", "anthropic"]
OutcomeKind = Literal["applied", "nothing_to_do", "no_gain", "failed", "unachievable"]
StrPath = Union[str, "PathLike[str]"]
Requirement = Union[None, str, Tuple[str, "list[str]"]]
Answer = Union[str, Summary]
Summarizer = Union[Literal["extractive", "heuristic"], Callable[[SummaryRequest], Answer]]
AsyncSummarizer = Callable[[SummaryRequest], Awaitable[Answer]]
Json = Any


class PolicyLike(Protocol):
    """A policy written in Python: a deterministic function of the state it is shown.

    An exception reaches whoever runs the condenser, and nothing is recorded.
    """

    @property
    def name(self) -> str:
        """The name, as records and rows carry it."""

    def requirement(self, state: State, /) -> Requirement:
        """Whether to act: `None`, `"soft"` or `"hard"`, the latter two with a list of reasons if there are any of
        `request`, `tokens`, `events`, `policy` and `overflow`."""

    def plan(self, state: State, tried: list[str], /) -> Optional[Plan]:
        """What to do; `None` for nothing. `tried` says what failed on this very state. Raises `NoPlan` where nothing
        can be done."""


AnyPolicy = Union[str, Policy, PolicyLike]


class Row(TypedDict):
    """What one policy did to one trace; the columns are described in docs/METRICS.md. Only `wall_ms` differs between
    two runs."""

    trace: str
    format: str
    task: Optional[str]
    policy: str
    window: Optional[int]
    tokenizer: str
    summarizer: str
    seed: int
    steps: int
    condensations: int
    failed_condensations: int
    extended: int
    peak_tokens: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    over_window_steps: int
    summarizer_calls: int
    summarizer_input_tokens: int
    summarizer_output_tokens: int
    cost_usd: Optional[float]
    evidence_total: int
    evidence_in_view: int
    evidence_in_summary: int
    evidence_recoverable: int
    evidence_lost: int
    evidence_far_total: int
    evidence_far_in_view: int
    evidence_far_in_summary: int
    evidence_far_recoverable: int
    evidence_far_lost: int
    self_carried: int
    rereads_exposed: int
    rereads_habit: int
    invalid_requests: int
    pinned_changes: int
    inflations: int
    wall_ms: float
