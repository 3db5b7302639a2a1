"""Comparisons, data frames, threads."""

from __future__ import annotations

import os
import signal
import sys
import threading

import pytest
from helpers import TRACES
from test_condenser import Oldest, Raises

import condenser
from condenser import Comparison, InvalidInput, compare

QUICK = {"window": 8_000, "tokenizer": "chars/4"}


def without_time(rows):
    return [{name: value for name, value in row.items() if name != "wall_ms"} for row in rows]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(TRACES, ["none", Oldest(), "forget-all", "recorded"], **QUICK)


def test_a_policy_written_in_python_stands_in_the_table(comparison):
    table = str(comparison)
    rows = [row for row in comparison if row["policy"] == "oldest"]
    assert rows and sum(row["condensations"] for row in rows) > 0 and not any(row["invalid_requests"] for row in rows)
    lines = table.splitlines()
    assert lines[0].startswith("policy") and [line.split()[0] for line in lines[1:]] == [
        "none", "oldest", "forget-all", "recorded",
    ]  # fmt: skip


def test_rows_are_the_same_each_time_and_by_number_of_threads(comparison):
    again = compare(condenser.read_traces(TRACES), ["none", Oldest(), "forget-all", "recorded"], jobs=1, **QUICK)
    assert without_time(again) == without_time(comparison)


def test_a_comparison_is_a_sequence(comparison):
    assert comparison[0] == list(comparison)[0] and len(comparison[:2]) == 2
    assert isinstance(comparison[:2], Comparison) and "rows" in repr(comparison)
    mean = comparison.means()[0]
    assert mean["policy"] == "none" and mean["in_view"] == 1.0


def test_rows_become_data_frames(comparison):
    pyarrow = pytest.importorskip("pyarrow")
    table = comparison.to_arrow()
    assert table.num_rows == len(comparison) and table.to_pylist() == list(comparison)
    assert table.schema.field("cost_usd").type == pyarrow.float64()
    polars = pytest.importorskip("polars")
    assert comparison.to_polars().rows(named=True) == list(comparison)
    assert polars.from_arrow(table).equals(comparison.to_polars())
    pandas = pytest.importorskip("pandas")
    frame = comparison.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["policy"])[:2] == ["none", "oldest"]
    assert list(frame.columns) == table.column_names == list(condenser.Row.__annotations__) == list(comparison[0])
    empty = Comparison([])
    assert empty.to_arrow().schema == table.schema and empty.to_polars().schema == comparison.to_polars().schema


def test_windows_and_seeds_are_rows_of_their_own():
    path = sorted(TRACES.rglob("*.jsonl"))[0]
    rows = compare(path, ["none", "random-masking"], window=[4_000, 8_000], seeds=2, tokenizer="chars/4")
    keys = [(row["window"], row["policy"].split("(")[0], row["seed"]) for row in rows]
    assert keys == [(w, p, s) for w in (4_000, 8_000) for p, s in [("none", 0), ("random-masking", 0), ("random-masking", 1)]]


def test_a_summarizer_written_in_python_is_asked():
    asked = []

    def summarizer(request):
        asked.append(request.events)
        return "All is well."

    rows = compare(TRACES, ["llm-summarizing"], summarizer=summarizer, **QUICK)
    assert asked and {row["summarizer"] for row in rows} == {"summarizer"}
    assert sum(row["summarizer_calls"] for row in rows) == len(asked)


@pytest.mark.parametrize("where", ["requirement", "plan"])
def test_an_exception_of_a_policy_ends_the_comparison(where):
    with pytest.raises(KeyError, match="a slip of the policy"):
        compare(TRACES, ["none", Raises(where)], **QUICK)


def test_an_exception_of_a_summarizer_ends_the_comparison():
    def summarizer(request):
        raise RuntimeError("a slip of the summarizer")

    with pytest.raises(RuntimeError, match="a slip of the summarizer"):
        compare(TRACES, ["llm-summarizing"], summarizer=summarizer, **QUICK)


def test_an_interrupt_ends_a_comparison_before_its_next_rows():
    heard = threading.Event()

    class Interrupting:
        name = "interrupting"
        n_rows = 0
        length = sys.maxsize

        def requirement(self, state):
            # A view only grows here, until the next row begins.
            self.n_rows += len(state) < self.length
            self.length = len(state)
            if not heard.is_set():
                os.kill(os.getpid(), signal.SIGINT)
                heard.wait(60)
            return None

        def plan(self, state, tried):
            raise condenser.NoPlan

    def hear(*_):
        heard.set()
        raise KeyboardInterrupt

    policy = Interrupting()
    before = signal.signal(signal.SIGINT, hear)
    try:
        with pytest.raises(KeyboardInterrupt):
            compare(TRACES / "tally-csv.pi.jsonl", [policy], window=range(1_000, 1_050), tokenizer="chars/4", jobs=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard.is_set() and policy.n_rows < 25


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InvalidInput, match="recent-events"):
        compare(TRACES, ["recent-event"])
    with pytest.raises(InvalidInput, match="there are extractive, heuristic"):
        compare(TRACES, ["none"], summarizer="odd")
    with pytest.raises(InvalidInput, match="two policies"):
        compare(TRACES, ["none", "none"])
    with pytest.raises(condenser.ReadError, match="nowhere"):
        compare("nowhere", ["none"])


def test_a_thread_that_counts_goes_on_while_policies_are_compared():
    counted = 0
    stop = threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    # Were the interpreter lock held, only what fits into a few switches before the call would be counted.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        before = counted
        compare(TRACES, ["none", "observation-masking", "folding"], **QUICK)
        meanwhile = counted - before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert meanwhile > 20_000


def test_two_threads_compare_at_once():
    barrier = threading.Barrier(2, timeout=60)

    class Meets(Oldest):
        """Waits, once, in the middle of a comparison, until the other one is there too."""

        def __init__(self):
            super().__init__()
            self.met = False

        def requirement(self, state):
            if not self.met:
                self.met = True
                barrier.wait()
            return super().requirement(state)

    rows = [None, None]

    def work(at):
        rows[at] = compare(sorted(TRACES.rglob("*.jsonl"))[0], [Meets()], jobs=1, **QUICK)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert without_time(rows[0]) == without_time(rows[1]) != []
