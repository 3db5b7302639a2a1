"""An event-sourced context condenser for LLM agents, and a harness that compares condensation policies.

An agent's history is a list of `Event`s. What the model is shown next is a `View`: the events replayed, with their
`Condensation` records applied. A policy decides what leaves; the `Condenser` carries it out, checks it and hands back
the record, which the host appends like any other event. `compare` replays recorded traces under many policies.
"""

from ._async import run_async
from ._compare import Comparison, compare
from ._native import (
    Condensation,
    Condenser,
    CondenserError,
    Entry,
    Event,
    InvalidInput,
    Log,
    LogError,
    NeedSummary,
    NoPlan,
    Outcome,
    Plan,
    Policy,
    ReadError,
    ShadowReport,
    StaleError,
    State,
    SummarizerError,
    Summary,
    SummaryRequest,
    TokenCounter,
    Trace,
    View,
    __version__,
    find_traces,
    policies,
    read_traces,
    write_traces,
)
from ._trace import read_trace
from ._types import PolicyLike, Row

__all__ = [
    "Comparison",
    "Condensation",
    "Condenser",
    "CondenserError",
    "Entry",
    "Event",
    "InvalidInput",
    "Log",
    "LogError",
    "NeedSummary",
    "NoPlan",
    "Outcome",
    "Plan",
    "Policy",
    "PolicyLike",
    "ReadError",
    "Row",
    "ShadowReport",
    "StaleError",
    "State",
    "SummarizerError",
    "Summary",
    "SummaryRequest",
    "TokenCounter",
    "Trace",
    "View",
    "__version__",
    "compare",
    "find_traces",
    "policies",
    "read_trace",
    "read_traces",
    "run_async",
    "write_traces",
]
