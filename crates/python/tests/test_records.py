"""Events, condensations and views."""

from __future__ import annotations

import copy
import pickle

import pytest
from helpers import call, say, session

import condenser
from condenser import Condensation, Event, InvalidInput, View


def test_an_event_is_read_and_written_unchanged():
    data = {
        "schema": 1, "id": "e1", "parent": "e0", "timestamp": "2026-01-01T00:00:00Z", "source": "agent",
        "kind": "action", "call_id": "c1", "tool_name": "shell", "arguments": '{"command": "ls"}',
        "thought": [{"type": "text", "text": "look"}], "response_id": "r1", "foreign": {"risk": 1}, "mood": [None, 1.5],
    }  # fmt: skip
    event = Event.from_dict(data)
    assert event.to_dict() == data
    assert Event.from_json(event.to_json()) == event == Event.from_json(event.to_json().encode())
    assert (event.id, event.kind, event.source, event.parent) == ("e1", "action", "agent", "e0")
    assert (event.call_id, event.tool_name, event.response_id) == ("c1", "shell", "r1")
    assert event.text == 'look\n{"command": "ls"}'


@pytest.mark.parametrize("make", [pickle.loads, lambda data: copy.deepcopy(pickle.loads(data))])
@pytest.mark.parametrize(
    "record", [say("u", "hé\n"), Condensation({"a", "b"}, "s", 1, rewrites={"z": {"op": "clear", "text": "gone"}})]
)
def test_records_are_pickled_and_copied(record, make):
    assert make(pickle.dumps(record)) == record


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Event.from_json("{"), "EOF"),
        (lambda: Event.from_json(b"\xff"), "not UTF-8"),
        (lambda: Event.from_dict({"id": "x"}), "source"),
        (lambda: Event("x", "message", source="user"), "role"),
        (lambda: Event("x", "message", source="nobody", role="user"), "nobody"),
        (lambda: Condensation.from_dict({"summary_offset": -1}), "invalid value"),
        (lambda: View(rules="odd"), "sound and openhands"),
        (lambda: View([say("u")]).request("odd"), "odd"),
        (lambda: View([say("u")]).tokens("o200"), "did you mean `o200k`"),
        (lambda: condenser.Policy("recent"), "recent-events"),
        (lambda: condenser.Policy("recent-events", max_event=1), "max_event"),
    ],
)
def test_what_is_wrong_is_said(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_a_view_is_a_sequence_of_entries():
    events = [say("1"), *call("2"), say("3")]
    view = View(events)
    assert view.ids == ["1", "2", "2r", "3"] == [entry.id for entry in view]
    assert len(view) == 4 and view[-1].id == "3" and [entry.id for entry in view[1:3]] == ["2", "2r"]
    assert [entry.kind for entry in view[::-1]] == ["message", "observation", "action", "message"]
    assert view[1].event == events[1] and view[0].text == "text 1"
    assert view.manipulation_indices == [0, 1, 3, 4] and view.next_index(2) == 3 and view.previous_index(2) == 1
    with pytest.raises(IndexError):
        view[4]


def test_a_condensation_leaves_the_log_and_changes_the_view():
    view = View(session(3))
    before = view.copy()
    record = Condensation({"a0", "a0r"}, "It began.", 2)
    preview = view.preview(record)
    assert view.push(record.event("c")) == "condensed"
    assert view.ids == ["s", "u", "c-summary", "a1", "a1r", "a2", "a2r"]
    assert preview.ids == ["s", "u", "preview-summary", *view.ids[3:]] and len(before) == 8
    assert view[2].is_summary and view[2].event is None and view[2].shown() == {"summary": "It began."}
    assert view.records == ["c"] and before.diff(view)["left"] == ["a0", "a0r"]
    assert view.push(Event("x", "undo", source="user", condensation="c")) == "hidden"
    assert view.ids == before.ids


def test_entries_keep_what_they_were_when_the_view_goes_on():
    view = View([say("1")])
    entry = view[0]
    view.push(Condensation({"1"}).event("c"))
    assert len(view) == 0 and entry.id == "1" and entry.text == "text 1"


@pytest.mark.parametrize("api", ["openai", "responses", "anthropic"])
def test_a_request_is_valid_for_its_api(api):
    view = View(session(2)[:-1])
    request = view.request(api)
    assert View.validate(request, api) == []
    assert View.validate({}, api) != []


def test_sizes_are_those_of_the_whole_request():
    view = View(session(2))
    counter = condenser.TokenCounter("chars/4")
    assert counter.is_estimate and counter.count("abcde") == 2
    assert pickle.loads(pickle.dumps(counter)).name == "chars/4"
    assert view.tokens("chars/4") > counter.count(view[3].text) > 0


def test_a_view_is_rendered_as_stable_text():
    view = View([say("01J8Z3", "hello\r\n")])
    assert view.render() == "condenser view v1 full\n[0] user e1\n  text\n  | hello\n  |\n"
    assert view.render("kinds").startswith("condenser view v1 kinds\n")
    assert view.render(3).startswith("condenser view v1 prefix 3\n")


def test_everything_says_what_it_is():
    event, view = say("u"), View(session(1))
    assert repr(event) == 'Event("u", "message", source="user")'
    assert repr(view) == 'View(4 of 4 events, rules="sound")'
    assert repr(view[1]) == 'Entry(1, "u", "message")'
    assert repr(Condensation({"a"})) == "Condensation(forgets 1, rewrites 0, without a summary)"
    assert repr(condenser.Policy("none")) == 'Policy("none")'
    assert condenser.__version__.count(".") == 2
    for name in condenser.__all__:
        assert getattr(condenser, name).__doc__, name
