"""Real conversations of the SDK, with a scripted model."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from recorded import ROOT  # isort: skip  (sets the environment first)
from openhands.sdk import Agent, Conversation
from openhands.sdk.context.condenser import LLMSummarizingCondenser, NoCondensationAvailableException
from openhands.sdk.context.view import View as SdkView
from openhands.sdk.conversation.event_store import EventLog
from openhands.sdk.event import Condensation as SdkCondensation, Event as SdkEvent, MessageEvent, ObservationEvent
from openhands.sdk.io import LocalFileStore
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import Action, Observation, Tool, ToolDefinition, ToolExecutor, register_tool
from pydantic import PrivateAttr

import condenser
from condenser import Plan, View
from condenser.openhands import (
    PolicyCondenser,
    ShadowCondenser,
    read_conversation,
    to_event,
    write_conversation,
)


class LookAction(Action):
    page: int


class LookObservation(Observation):
    note: str = ""

    @property
    def to_llm_content(self) -> Sequence[Any]:
        return [TextContent(text=f"[{self.note}]"), *super().to_llm_content]


class LookExecutor(ToolExecutor[LookAction, LookObservation]):
    def __call__(self, action: LookAction, conversation: Any = None) -> LookObservation:
        return LookObservation.from_text(f"page {action.page}: " + "lorem ipsum " * 60, note=f"n{action.page}")


class LookTool(ToolDefinition[LookAction, LookObservation]):
    @classmethod
    def create(cls, *_: Any, **__: Any) -> "list[LookTool]":
        return [
            cls(
                description="Looks at a page.",
                action_type=LookAction,
                observation_type=LookObservation,
                executor=LookExecutor(),
            )
        ]


register_tool("look", LookTool)


class Model(TestLLM):
    """Looks at a page at each step; keeps what it was shown."""

    _shown: list[list[Message]] = PrivateAttr(default_factory=list)
    _steps: int = PrivateAttr(default=10**9)
    _limit: int | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, steps: int, limit: int | None = None) -> "Model":
        model = cls(model="scripted", usage_id="agent")
        model._steps, model._limit = steps, limit
        return model

    @property
    def effective_max_input_tokens(self) -> int | None:
        return self._limit

    def completion(self, messages: list[Message], *_: Any, **__: Any) -> Any:
        self._shown.append(messages)
        n = len(self._shown)
        message = Message(role="assistant", content=[TextContent(text=f"step {n}")])
        if n < self._steps:
            call = MessageToolCall(id=f"c{uuid.uuid4()}", name="look", arguments=f'{{"page": {n}}}', origin="completion")
            message.tool_calls = [call]
        self._scripted_responses.append(message)
        return super().completion(messages)


class Writer(TestLLM):
    """Writes summaries."""

    _asked: int = PrivateAttr(default=0)

    def completion(self, messages: list[Message], *_: Any, **__: Any) -> Any:
        self._asked += 1
        text = f"Summary {self._asked}: {len(messages[1].content[0].text)} characters."
        self._scripted_responses.append(Message(role="assistant", content=[TextContent(text=text)]))
        return super().completion(messages)


def writer() -> Writer:
    return Writer(model="scripted", usage_id="condenser")


def converse(folder: Path, model: Model, condenser: Any, *, id: uuid.UUID | None = None, **more: Any) -> Any:
    agent = Agent(llm=model, tools=[Tool(name="look")], include_default_tools=[], condenser=condenser)
    return Conversation(
        agent=agent,
        workspace=str(folder),
        persistence_dir=str(folder / "store"),
        conversation_id=id,
        visualizer=None,
        stuck_detection=False,
        max_iteration_per_run=1000,
        delete_on_close=False,
        **more,
    )


def text_of(messages: list[Message]) -> str:
    return "\n".join(part.text for message in messages for part in message.content if isinstance(part, TextContent))


def test_a_conversation_runs_200_steps_is_persisted_reopened_and_goes_on(tmp_path):
    model, summaries = Model.of(200), writer()
    ours = PolicyCondenser(policy="llm-summarizing", llm=summaries, window=12_000, reserve=2_000, tokenizer="chars/4")
    conversation = converse(tmp_path, model, ours)
    conversation.send_message("Look at all pages.")
    conversation.run()
    id = conversation.id
    events = list(conversation.state.events)
    condensations = [event for event in events if isinstance(event, SdkCondensation)]
    assert len(model._shown) == 200 and len(condensations) == summaries._asked > 5
    assert sum(isinstance(event, ObservationEvent) for event in events) == 199
    sizes = [len(text_of(messages)) // 4 for messages in model._shown]
    assert max(sizes) < 10_000 and "Summary" in text_of(model._shown[-1]) and "Look at all pages." in text_of(model._shown[-1])
    shown = [event.id for event in conversation.state.view.events]
    conversation.close()

    # Our own view of what the SDK wrote, before anything else touches it.
    trace = read_conversation(tmp_path / "store" / id.hex)
    assert View(trace.events, rules="openhands").ids == shown

    model = Model.of(20)
    again = converse(tmp_path, model, PolicyCondenser(**ours.model_dump(exclude={"llm"}), llm=summaries), id=id)
    assert [event.id for event in again.state.view.events] == shown
    assert [event.id for event in again.state.events][: len(events)] == [event.id for event in events]
    again.send_message("And once more.")
    again.run()
    assert len(model._shown) == 20 and "And once more." in text_of(model._shown[-1])
    assert max(len(text_of(messages)) // 4 for messages in model._shown) < 10_000
    again.close()


@pytest.mark.parametrize("policy", ["recent-events", "folding", "craft", "openhands-agent", "amortized-forgetting"])
def test_any_policy_runs_in_an_agent(tmp_path, policy):
    model = Model.of(60, limit=8_000)
    settings = {"max_size": 30} if policy == "openhands-agent" else {}
    conversation = converse(tmp_path, model, PolicyCondenser(policy=policy, settings=settings, tokenizer="chars/4"))
    conversation.send_message("Look at all pages.")
    conversation.run()
    assert len(model._shown) == 60 and any(isinstance(event, SdkCondensation) for event in conversation.state.events)
    assert max(len(text_of(messages)) // 4 for messages in model._shown) < 8_000
    conversation.close()


def test_rewrites_stand_in_the_view_and_are_not_persisted(tmp_path):
    model = Model.of(30)
    masks = PolicyCondenser(policy="observation-masking", window=100_000, tokenizer="chars/4")
    conversation = converse(tmp_path, model, masks)
    conversation.send_message("Look at all pages.")
    conversation.run()
    last = text_of(model._shown[-1])
    assert "page 29: lorem" in last and "page 1: lorem" not in last and "[n29]" in last
    observations = [event for event in conversation.state.events if isinstance(event, ObservationEvent)]
    assert all("lorem" in event.observation.text for event in observations) and len(observations) == 29
    assert not any(isinstance(event, SdkCondensation) for event in conversation.state.events)
    # What was masked once stays as it is from step to step.
    tools = [[text_of([message]) for message in shown if message.role == "tool"] for shown in model._shown]
    for before, after in zip(tools, tools[1:]):
        assert all(now == then for then, now in zip(before, after) if "lorem" not in then)
    assert [message.tool_call_id for message in model._shown[-1] if message.role == "tool"] == [
        event.tool_call_id for event in observations
    ]
    conversation.close()


class KeepsLast:
    """A policy written in Python."""

    name = "keeps-last"

    def requirement(self, state):
        return "soft" if len(state) > 20 else None

    def plan(self, state, tried):
        end = state.previous_index(len(state) - 6)
        return Plan(forget=state.ids[2:end], summary=f"{end - 2} entries were left out.", offset=2)


def test_a_policy_written_in_python_runs_in_an_agent(tmp_path):
    model = Model.of(40)
    conversation = converse(tmp_path, model, PolicyCondenser(own_policy=KeepsLast()))
    conversation.send_message("Look at all pages.")
    conversation.run()
    condensations = [event for event in conversation.state.events if isinstance(event, SdkCondensation)]
    assert len(condensations) > 2 and condensations[0].summary_offset == 2
    assert "entries were left out." in text_of(model._shown[-1]) and max(map(len, model._shown)) <= 20
    conversation.close()


def test_an_exception_of_a_policy_reaches_the_caller(tmp_path):
    class Falls(KeepsLast):
        def plan(self, state, tried):
            raise KeyError("a slip")

    conversation = converse(tmp_path, Model.of(40), PolicyCondenser(own_policy=Falls()))
    conversation.send_message("Look at all pages.")
    with pytest.raises(Exception, match="a slip"):
        conversation.run()
    assert not any(isinstance(event, SdkCondensation) for event in conversation.state.events)
    conversation.close()


def history(n: int) -> list[SdkEvent]:
    events: list[SdkEvent] = []
    for at in range(n):
        message = Message(role="user", content=[TextContent(text=f"{at}: " + "lorem ipsum " * 50)])
        events.append(MessageEvent(id=f"{at:032x}", source="user", llm_message=message))
    return events


def test_what_cannot_be_made_small_enough_is_said_with_sizes():
    view = SdkView.from_events(history(1))
    ours = PolicyCondenser(policy="llm-summarizing", window=100, reserve=10, tokenizer="chars/4")
    with pytest.raises(NoCondensationAvailableException, match="the request has 15. tokens, 90 is the most"):
        ours.condense(view)


def test_a_failed_attempt_is_not_made_again_at_once():
    class Broken(Writer):
        def completion(self, messages: list[Message], *_: Any, **__: Any) -> Any:
            self._asked += 1
            raise RuntimeError("the model is out")

    broken = Broken(model="scripted", usage_id="condenser")
    view = SdkView.from_events(history(40))
    ours = PolicyCondenser(policy="llm-summarizing", llm=broken, window=7_500, reserve=10, tokenizer="chars/4", fallbacks=[])
    assert ours.condense(view) is view and broken._asked > 0
    asked = broken._asked
    assert ours.condense(view) is view and broken._asked == asked


def test_the_event_loop_goes_on_during_a_condensation():
    view = SdkView.from_events(history(40))
    ours = PolicyCondenser(policy="llm-summarizing", llm=writer(), window=6_000, reserve=500, tokenizer="chars/4")
    by_loop = asyncio.run(ours.acondense(view))
    assert isinstance(by_loop, SdkCondensation)
    again = PolicyCondenser(policy="llm-summarizing", llm=writer(), window=6_000, reserve=500, tokenizer="chars/4")
    same = again.condense(view)
    assert (same.forgotten_event_ids, same.summary) == (by_loop.forgotten_event_ids, by_loop.summary)


def test_shadow_mode_reports_and_leaves_the_host_as_it_is(tmp_path):
    def run(folder: Path, condenser_of_agent: Any) -> list[Any]:
        model = Model.of(60)
        conversation = converse(folder, model, condenser_of_agent)
        conversation.send_message("Look at all pages.")
        conversation.run()
        conversation.close()
        return [text_of(messages) for messages in model._shown]

    def host() -> Any:
        return LLMSummarizingCondenser(llm=writer(), max_size=40, keep_first=2)

    class Falls(KeepsLast):
        def plan(self, state, tried):
            raise KeyError("a slip")

    alone = run(tmp_path / "a", host())
    ours = PolicyCondenser(policy="recent-events", window=8_000, reserve=500, tokenizer="chars/4")
    for at, shadow in enumerate([ours, PolicyCondenser(own_policy=Falls())]):
        beside = ShadowCondenser(host=host(), ours=shadow)
        assert run(tmp_path / f"b{at}", beside) == alone
        assert beside.handles_condensation_requests() and beside.reports
        if shadow is ours:
            both = [report for report in beside.reports if report.both]
            assert both and all(report.after_ours <= report.before for report in beside.reports)
        else:
            assert any(report.error and "a slip" in report.error for report in beside.reports)


def test_the_sdk_opens_a_conversation_that_we_wrote_and_goes_on(tmp_path):
    for file in sorted((ROOT / "fixtures" / "traces").rglob("*.jsonl")):
        trace = condenser.read_trace(file)
        if trace.format == "openhands-v1":
            continue  # Its tools are those of another package.
        model = Model.of(3)
        agent = Agent(llm=model, tools=[Tool(name="look")], include_default_tools=[])
        id = write_conversation(trace, tmp_path / file.stem / "store", agent=agent, workspace=tmp_path)
        conversation = converse(tmp_path / file.stem, model, None, id=id)
        stored = len(EventLog(LocalFileStore(str(tmp_path / file.stem / "store" / id.hex))))
        assert stored > 10 and len(conversation.state.view.events) > 5
        texts = [event.text for event in trace.events if event.kind == "message" and event.source == "user"]
        conversation.send_message("Go on.")
        conversation.run()
        shown = text_of(model._shown[-1])
        assert "Go on." in shown and (not texts or texts[-1] in shown)
        conversation.close()
        back = read_conversation(tmp_path / file.stem / "store" / id.hex)
        assert len(back.events) > stored and back.events[-1].text == "step 3"
    with pytest.raises(condenser.CondenserError, match="exists"):
        write_conversation(trace, tmp_path / file.stem / "store", agent=agent, conversation_id=id)


def test_an_event_holds_the_content_that_the_sdk_would_send():
    observation = LookObservation.from_text("body", note="head", is_error=True)
    event = ObservationEvent(observation=observation, action_id="a", tool_name="look", tool_call_id="c")
    ours = to_event(event)
    assert ours.text == "[head]\n[An error occurred during execution.]\n\nbody"
    assert ours.id == event.id and ours.call_id == "c"
