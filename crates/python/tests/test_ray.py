"""Comparisons on a Ray cluster of two workers."""

from __future__ import annotations

import json
import os

import pytest
from helpers import TRACES

import condenser

os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
ray = pytest.importorskip("ray")
pyarrow = pytest.importorskip("pyarrow")

import pyarrow.parquet  # noqa: E402

import condenser.ray  # noqa: E402

QUICK = {"window": 8_000, "tokenizer": "chars/4"}
POLICIES = ["none", "observation-masking", "random-masking"]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def short():
    """A policy written in Python, which travels by pickle: a class of a module would be looked up by its name."""

    class Short:
        name = "short"

        def requirement(self, state):
            return "soft" if len(state) > 30 else None

        def plan(self, state, tried):
            if tried:
                raise condenser.NoPlan
            return condenser.Plan(forget=state.ids[2 : state.previous_index(len(state) - 10)])

    return Short()


def in_order(rows):
    rows = [{name: value for name, value in row.items() if name != "wall_ms"} for row in rows]
    return sorted(rows, key=lambda row: (row["trace"], row["policy"], row["seed"]))


@pytest.fixture(scope="module")
def dataset_file(tmp_path_factory):
    """Trajectories as a Parquet file."""
    messages = [
        [{"role": "user", "content": f"Count {n}."}, {"role": "assistant", "content": "one " * 40}, {"role": "user", "content": "More."}]
        + [{"role": "assistant", "content": "two"}]
        for n in range(20)
    ]
    path = tmp_path_factory.mktemp("parquet") / "trajectories.parquet"
    table = pyarrow.table({"instance_id": [f"i{n}" for n in range(20)], "messages": [json.dumps(row) for row in messages]})
    pyarrow.parquet.write_table(table, path)
    return path


def test_two_workers_give_the_same_rows_as_one_process(tmp_path, dataset_file):
    from_ray = condenser.ray.compare([TRACES, dataset_file], [*POLICIES, short()], concurrency=2, **QUICK)
    from_ray.write_parquet(str(tmp_path / "rows"))
    rows = pyarrow.parquet.read_table(tmp_path / "rows").to_pylist()
    here = condenser.compare([TRACES, dataset_file], [*POLICIES, short()], **QUICK)
    assert in_order(rows) == in_order(here) and len({row["trace"] for row in rows}) > 20


def test_what_is_misspelt_is_said_before_anything_runs():
    with pytest.raises(condenser.InvalidInput, match="recent-events"):
        condenser.ray.compare(TRACES, ["recent-event"])
