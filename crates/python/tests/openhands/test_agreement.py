"""The SDK and we, on the same events in one process. Expectations are not read: the SDK answers live."""

from __future__ import annotations

import json
import math
from typing import Any

from recorded import cases  # isort: skip  (sets the environment first)
from openhands.sdk.context.condenser import (
    LLMSummarizingCondenser,
    NoOpCondenser,
    PipelineCondenser,
)
from openhands.sdk.context.view import View as SdkView
from openhands.sdk.event import Condensation as SdkCondensation, Event as SdkEvent, LLMConvertibleEvent
from openhands.sdk.llm import ImageContent, Message, TextContent
from openhands.sdk.testing import TestLLM
from pydantic import PrivateAttr

from condenser import Event, InvalidInput, Policy, View
from condenser.openhands import PolicyCondenser, build_view

MENDED = {"condense-edge-summary-reply-is-image", "condense-edge-summary-reply-without-content"}
"""The SDK forgets events for an answer without text; here that is a failed call."""


def load(case: dict[str, Any]) -> list[SdkEvent] | None:
    try:
        return [SdkEvent.model_validate(event) for event in case["events"]]
    except Exception:
        return None


def load_ours(case: dict[str, Any]) -> list[Event] | None:
    try:
        return [Event.from_openhands(event, strict=True) for event in case["events"]]
    except InvalidInput:
        return None


def ids(view: SdkView) -> list[str]:
    return [event.id for event in view.events]


def facts(view: SdkView) -> tuple[Any, ...]:
    return ids(view), view.unhandled_condensation_request, sorted(view.manipulation_indices)


def our_facts(view: View) -> tuple[Any, ...]:
    return view.ids, view.unhandled_condensation_request, view.manipulation_indices


def test_views_are_rebuilt_alike():
    n = 0
    for case in cases("view"):
        n += 1
        events, ours = load(case), load_ours(case)
        assert (events is None) == (ours is None), case["id"]
        if events is None:
            continue
        sdk = SdkView.from_events(events)
        assert our_facts(View(ours, rules="openhands")) == facts(sdk), case["id"]
        lines = "\n".join(event.model_dump_json(exclude_none=True) for event in events)
        assert our_facts(View.from_openhands_json(lines)) == facts(sdk), case["id"]
        built = build_view(events)
        assert facts(built) == facts(sdk), case["id"]
        assert messages(built) == messages(sdk), case["id"]
        assert set(ids(build_view(events, "sound"))) <= {event.id for event in events} | {
            f"{event.id}-summary" for event in events
        }
    print(f"{n} views")


def messages(view: SdkView) -> Any:
    try:
        return [message.model_dump() for message in LLMConvertibleEvent.events_to_messages(view.events)]
    except AssertionError:
        return "refused"


def test_views_grow_alike():
    n = 0
    for case in cases("append"):
        events, ours = load(case), load_ours(case)
        assert (events is None) == (ours is None), case["id"]
        if events is None or ours is None:
            continue
        every = case["config"].get("checkpoint_every", 1)
        sdk, view = SdkView(), View(rules="openhands")
        for at, (event, our) in enumerate(zip(events, ours, strict=True), 1):
            sdk.append_event(event)
            view.push(our)
            if at % every == 0 or at == len(events):
                n += 1
                assert our_facts(view) == facts(sdk), (case["id"], at)
    print(f"{n} points")


class Scripted(TestLLM):
    """The summarizer that a case scripts, and the counter of its agent's model."""

    _script: dict[str, Any] = PrivateAttr(default_factory=dict)
    _counter: dict[str, Any] = PrivateAttr(default_factory=dict)
    _limit: int | None = PrivateAttr(default=None)
    _calls: int = PrivateAttr(default=0)

    @classmethod
    def of(cls, script: Any, counter: Any, limit: int | None = None) -> "Scripted":
        llm = cls(model="scripted", usage_id="scripted")
        llm._script, llm._counter, llm._limit = script or {}, counter or {}, limit
        return llm

    @property
    def effective_max_input_tokens(self) -> int | None:
        return self._limit

    def completion(self, messages: list[Message], *_: Any, **__: Any) -> Any:
        self._calls += 1
        if self._calls <= self._script.get("fail_first", 0):
            raise RuntimeError("scripted")
        content: list[TextContent | ImageContent] = [TextContent(text=self._script.get("summary", ""))]
        reply = self._script.get("reply")
        if reply == "empty":
            content = []
        elif reply == "image":
            content.insert(0, ImageContent(image_urls=["https://example.org/i.png"]))
        self._scripted_responses.append(Message(role="assistant", content=content))
        return super().completion(messages)

    def get_token_count(self, messages: list[Message], tools: Any = None, add_security_risk_prediction: bool = False) -> int:
        total = self._counter["per_tool"] * len(tools or ())
        for message in messages:
            characters = images = 0
            for part in message.content:
                if isinstance(part, TextContent):
                    characters += len(part.text)
                else:
                    images += len(part.image_urls)
            for call in message.tool_calls or ():
                characters += len(call.name) + len(call.arguments)
            total += self._counter["per_message"] + math.ceil(characters / 4) + self._counter["per_image"] * images
        return total


def sdk_condenser(spec: dict[str, Any], llm: TestLLM) -> Any:
    spec = dict(spec)
    kind = spec.pop("type")
    if kind == "noop":
        return NoOpCondenser()
    if kind == "pipeline":
        return PipelineCondenser(condensers=[sdk_condenser(member, llm) for member in spec["condensers"]])
    return LLMSummarizingCondenser(llm=llm, **spec)


def our_policy(spec: dict[str, Any], count: Any, has_agent: bool) -> Policy:
    spec = dict(spec)
    kind = spec.pop("type")
    if kind == "noop":
        return Policy("none")
    if kind == "pipeline":
        return Policy.pipeline("pipeline", [our_policy(member, count, has_agent) for member in spec["condensers"]])
    if not has_agent:
        spec["max_tokens"] = None
    return Policy.openhands(count, **spec)


def decided(decide: Any) -> Any:
    """What was decided, in the words of both."""
    try:
        result = decide()
    except Exception:
        return "refused"
    if isinstance(result, SdkCondensation):
        return sorted(result.forgotten_event_ids), result.summary, result.summary_offset
    return ids(result)


def test_condensers_decide_alike():
    from condenser.openhands import _counter

    counts = {"alike": 0, "left alone": 0, "mended": 0, "refused": 0}
    for case in cases("condense"):
        config = case["config"]
        events = load(case)
        try:
            host = sdk_condenser(config["condenser"], Scripted.of(config["llm"], config["token_counter"]))
        except Exception:
            host = None
        if events is None or host is None:
            counts["refused"] += 1
            count = lambda messages, tools: 0  # noqa: E731
            try:
                refused = events is None and load_ours(case) is None
                our_policy(config["condenser"], count, True)
            except InvalidInput:
                refused = True
            assert refused, case["id"]
            continue
        if config["view"] == "append":
            view = SdkView()
            for event in events:
                view.append_event(event)
        else:
            view = SdkView.from_events(events)
        agent = config["agent_llm"]
        agent_llm = None if agent is None else Scripted.of(None, config["token_counter"], agent["max_input_tokens"])
        ours = PolicyCondenser(
            own_policy=our_policy(config["condenser"], _counter(view, agent_llm), agent is not None),
            llm=Scripted.of(config["llm"], config["token_counter"]),
            rules="openhands",
            guards=False,
        )
        by_sdk = decided(lambda: host.condense(view, agent_llm))
        by_us = decided(lambda: ours.condense(view, agent_llm))
        if case["id"] in MENDED:
            counts["mended"] += 1
            assert by_sdk[1] is None and by_us != by_sdk, case["id"]
            continue
        if by_us != by_sdk:
            # Where the SDK's condenser raises, ours may also leave the view as it is.
            assert by_sdk == "refused" and by_us == ids(view), (case["id"], by_us, by_sdk)
            counts["left alone"] += 1
        else:
            counts["alike"] += 1
    print(json.dumps(counts))
