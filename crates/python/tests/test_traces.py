"""Traces, policies by name, and the log."""

from __future__ import annotations

import json
import pickle

import pytest
from helpers import call, say, session

import condenser
from condenser import Condensation, Log, LogError, ReadError, StaleError, Trace, View


def test_traces_are_read_in_any_known_format(traces):
    read = condenser.read_traces(traces)
    assert len(read) >= 6 and all(len(trace.events) > 10 for trace in read)
    one = condenser.read_trace(sorted(traces.rglob("*.jsonl"))[0])
    assert one.events[0].id and one.format in one.__repr__()


def test_what_is_no_trace_is_refused_by_name(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ReadError, match="notes.txt"):
        condenser.read_traces(tmp_path / "notes.txt")
    with pytest.raises(ReadError, match="0 traces"):
        condenser.read_trace(tmp_path)


def test_a_trace_is_made_from_events_pickled_and_written():
    trace = Trace(session(2), name="mine", task="t")
    again = pickle.loads(pickle.dumps(trace))
    assert (again.name, again.task, again.events) == ("mine", "t", trace.events)
    messages = json.loads(condenser.write_traces([trace], "openai-chat"))["messages"]
    assert [message["role"] for message in messages][:3] == ["system", "user", "assistant"]
    with pytest.raises(condenser.InvalidInput, match="two events"):
        Trace([say("1"), say("1")])


def test_every_policy_is_listed_and_can_be_made():
    for info in condenser.policies():
        policy = condenser.Policy(info["name"])
        assert policy.name == info["name"] and info["description"]
    policy = condenser.Policy("recent-events", max_events=7)
    assert pickle.loads(pickle.dumps(policy)).config_digest == policy.config_digest
    assert policy.config_digest != condenser.Policy("recent-events").config_digest


def test_a_log_keeps_sessions_across_restarts(tmp_path):
    path = tmp_path / "log.db"
    with Log(path) as log:
        id = log.create_session("demo", meta={"task": 1})
        log.append(id, session(4))
        record = Condensation({"a0", "a0r"}, "It began.", 2)
        condensed = log.append_condensation(id, record)
        with pytest.raises(StaleError, match="came after it"):
            log.append_condensation(id, record)
    with pytest.raises(LogError, match="closed"):
        log.sessions()
    with Log(path, read_only=True) as log:
        assert [(s["id"], s["name"], s["meta"]) for s in log.sessions()] == [(id, "demo", {"task": 1})]
        view = log.view(id)
        assert view.ids[:3] == ["s", "u", f"{condensed}-summary"] and view[1].text == "Fix the build."
        assert log.text(id, "a0r").startswith("line 0") and log.event(id, "nobody") is None
        assert log.verify(id) == 0 and len(log.events(id)) == 11
    with Log(path) as log:
        assert [hit["id"] for hit in log.search(id, "fix build")] == ["u"]
        assert log.undo(id) == condensed and len(log.view(id)) == 10
        log.pin(id, ["u"])
        assert log.view(id)[1].is_pinned
        log.unpin(id, ["u"])
        log.set_head(id, "u")
        assert log.view(id).ids == ["s", "u"] == [event.id for event in log.branch(id)]


def test_an_append_is_whole_or_absent():
    log = Log()
    id = log.create_session("demo")
    with pytest.raises(LogError):
        log.append(id, [say("1"), say("1")])
    assert log.events(id) == []
    with pytest.raises(LogError):
        log.events("nobody")


def test_openhands_events_become_ours():
    line = json.dumps(
        {"kind": "MessageEvent", "id": "m1", "source": "user", "timestamp": "2026-01-01T00:00:00",
         "llm_message": {"role": "user", "content": [{"type": "text", "text": "hi"}]}}
    )  # fmt: skip
    event = condenser.Event.from_openhands(line, strict=True)
    assert (event.id, event.kind, event.text) == ("m1", "message", "hi")
    view = View.from_openhands_json(line + "\n\n" + line.replace("m1", "m2"))
    assert view.ids == ["m1", "m2"] and view[1].text == "hi" and view.rules == "openhands"
    with pytest.raises(condenser.InvalidInput, match="line 2"):
        View.from_openhands_json(line + "\n{}")
    with pytest.raises(condenser.InvalidInput, match="unknown event kind"):
        condenser.Event.from_openhands({"kind": "Odd", "id": "x"}, strict=True)
