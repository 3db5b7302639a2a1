"""condenser inside the OpenHands SDK. Needs the extra `openhands`, which needs Python 3.12.

`PolicyCondenser` runs any policy inside an SDK agent, `ShadowCondenser` runs it beside the agent's own condenser,
`build_view` builds the SDK's view, and conversations are read and written. Made for `openhands-sdk` 1.58.2.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Optional, Union, cast

from openhands.sdk.agent.base import AgentBase
from openhands.sdk.context.condenser.base import (
    CondenserBase,
    NoCondensationAvailableException,
    PipelinableCondenserBase,
)
from openhands.sdk.context.view import View as SdkView
from openhands.sdk.conversation.state import ConversationState
from openhands.sdk.event import (
    ActionEvent,
    AgentErrorEvent,
    Condensation as SdkCondensation,
    CondensationSummaryEvent,
    Event as SdkEvent,
    LLMConvertibleEvent,
    MessageEvent,
    ObservationEvent,
    SystemPromptEvent,
    UserRejectObservation,
)
from openhands.sdk.llm import LLM, LLMResponse, Message, TextContent
from openhands.sdk.tool.schema import Observation
from openhands.sdk.workspace import LocalWorkspace
from pydantic import ConfigDict, Field, PrivateAttr

from ._async import run_async
from ._native import (
    Condensation,
    Condenser,
    CondenserError,
    Entry,
    Event,
    Outcome,
    Policy,
    ShadowReport,
    SummarizerError,
    Summary,
    SummaryRequest,
    Trace,
    View,
    write_traces,
)
from ._trace import read_trace
from ._types import AnyPolicy, Rules, StrPath

__all__ = [
    "PolicyCondenser",
    "RewrittenObservation",
    "ShadowCondenser",
    "build_view",
    "read_conversation",
    "to_event",
    "write_conversation",
]

_SUMMARY = "-summary"


class RewrittenObservation(Observation):
    """A result whose content a policy changed. It stands in views only and is never stored."""


def build_view(events: Sequence[SdkEvent], rules: Rules = "openhands") -> SdkView:
    """The SDK's view of events: under `openhands` what `View.from_events` gives, under `sound` without its defects."""
    view = View.from_openhands_objects(events, rules=rules)
    shown: list[LLMConvertibleEvent] = []
    for entry in view:
        event = events[entry.seq]
        shown.append(cast(SdkCondensation, event).summary_event if entry.is_summary else cast(Any, event))
    # The list is made of the SDK's own events: nothing in it has to be checked again.
    return SdkView.model_construct(
        events=shown, unhandled_condensation_request=view.unhandled_condensation_request
    )


def to_event(event: SdkEvent) -> Event:
    """The same event as ours, with the content that the SDK would send."""
    if isinstance(event, ObservationEvent):
        observation = event.observation
        if type(observation).to_llm_content is not Observation.to_llm_content:
            content = list(observation.to_llm_content)
            header = Observation.ERROR_MESSAGE_HEADER
            if observation.is_error and content and isinstance(content[0], TextContent) and content[0].text == header:
                del content[0]
            sent = RewrittenObservation(content=content, is_error=observation.is_error)
            event = event.model_copy(update={"observation": sent})
    return Event.from_openhands(event.model_dump_json(exclude_none=True))


def _rewritten(event: LLMConvertibleEvent, entry: Entry) -> LLMConvertibleEvent:
    """The event with the content that an entry of our view shows."""
    shown = entry.shown()

    def blocks(name: str) -> list[dict[str, Any]]:
        written = []
        for block in shown.get(name, []):
            if block["type"] == "image":
                written.append({"type": "image", "image_urls": block["urls"]})
            elif block["type"] == "text":
                written.append({"type": "text", "text": block["text"]})
        return written

    data = event.model_dump(mode="json")
    if isinstance(event, ObservationEvent):
        observation = RewrittenObservation.model_validate(
            {"content": blocks("content"), "is_error": event.observation.is_error}
        )
        extended = [TextContent(text=block["text"]) for block in blocks("extended_content") if "text" in block]
        return event.model_copy(update={"observation": observation, "extended_content": extended})
    if isinstance(event, AgentErrorEvent):
        return event.model_copy(update={"error": entry.text})
    if isinstance(event, UserRejectObservation):
        return event.model_copy(update={"rejection_reason": entry.text})
    if isinstance(event, MessageEvent):
        data["llm_message"]["content"] = blocks("content")
        data["extended_content"] = [block for block in blocks("extended_content") if "text" in block]
    elif isinstance(event, ActionEvent):
        data["thought"] = [block for block in blocks("thought") if "text" in block]
        data["tool_call"]["arguments"] = shown["arguments"]
        data["reasoning_content"] = shown.get("reasoning")
        if not shown.get("thinking"):
            data["thinking_blocks"] = []
    elif isinstance(event, SystemPromptEvent):
        data["system_prompt"] = {"type": "text", "text": entry.text}
        data["dynamic_context"] = None
        return event.model_copy(
            update={"system_prompt": TextContent(text=entry.text), "dynamic_context": None}
        )
    else:
        return event
    return type(event).model_validate(data)


class PolicyCondenser(PipelinableCondenserBase):
    """Runs a policy of condenser inside an SDK agent.

    What a policy forgets and summarizes becomes the SDK's `Condensation`, which the SDK persists. What it rewrites
    stands as rewritten events in the view that is handed back: nothing of that is persisted, and a reopened
    conversation is rewritten anew. Where the request does not fit and nothing helps,
    `NoCondensationAvailableException` says so with sizes.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    policy: str = "llm-summarizing"
    """The policy by name."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the policy."""
    own_policy: Optional[Any] = Field(default=None, exclude=True)
    """A `Policy`, or a policy written in Python, instead of `policy`; it is not persisted."""
    llm: Optional[LLM] = None
    """Writes the summaries; without it `summarizer` does."""
    summarizer: Literal["extractive", "heuristic"] = "extractive"
    """Writes the summaries without a model."""
    window: Optional[int] = None
    """The tokens that a request may have with the answer; without it, the input limit of the agent's model."""
    reserve: int = 4_000
    """Room kept for the answer in `window`."""
    tokenizer: str = "o200k"
    """What counts tokens. The policies `openhands` and `openhands-agent` count with the agent's model."""
    rules: Rules = "sound"
    """The rules by which views may be cut."""
    guards: bool = True
    """Whether the condenser's guarantees are checked. Off only to run a port exactly as its original."""
    fallbacks: list[str] = Field(default_factory=lambda: ["folding", "recent-events"])
    """Policies that are asked, in order, while the request does not fit and nothing before has helped."""

    _events: dict[str, Event] = PrivateAttr(default_factory=dict)
    _rewrites: dict[str, dict[str, Any]] = PrivateAttr(default_factory=dict)
    _refused: list[tuple[str, Event]] = PrivateAttr(default_factory=list)

    def get_llm(self) -> Optional[LLM]:
        """The model that writes summaries."""
        return self.llm

    def handles_condensation_requests(self) -> bool:
        """Every policy but `none` is asked."""
        return self.own_policy is not None or self.policy != "none"

    def condense(self, view: SdkView, agent_llm: Optional[LLM] = None) -> Union[SdkView, SdkCondensation]:
        """Condenses the view where the policy wants to."""
        ours = self._view_of(view)
        outcome = self._condenser(view, agent_llm).run(ours, self._summarize if self.llm else self.summarizer)
        return self._result(view, ours, outcome)

    async def acondense(self, view: SdkView, agent_llm: Optional[LLM] = None) -> Union[SdkView, SdkCondensation]:
        """The same without blocking the event loop."""
        if self.llm is None:
            return await asyncio.to_thread(self.condense, view, agent_llm)
        ours = await asyncio.to_thread(self._view_of, view)
        outcome = await run_async(self._condenser(view, agent_llm), ours, self._asummarize)
        return self._result(view, ours, outcome)

    def shadow(
        self, view: SdkView, agent_llm: Optional[LLM] = None, host: Optional[SdkCondensation] = None
    ) -> ShadowReport:
        """What this condenser would do beside a host that did `host` on the same view. Nothing is changed."""
        record = None
        if host is not None:
            record = Condensation(host.forgotten_event_ids, host.summary, host.summary_offset)
        condenser = self._condenser(view, agent_llm)
        return condenser.shadow(self._view_of(view), record, self._summarize if self.llm else self.summarizer)

    def _condenser(self, view: SdkView, agent_llm: Optional[LLM]) -> Condenser:
        window, reserve = self.window, self.reserve
        if window is None:
            # The model's limit is one of the input: nothing of it is kept for the answer.
            window, reserve = (agent_llm.effective_max_input_tokens if agent_llm else None), 0
        policy: AnyPolicy
        if self.own_policy is not None:
            policy = self.own_policy
        elif self.policy in ("openhands", "openhands-agent"):
            preset = {"max_size": 80, "keep_first": 4} if self.policy == "openhands-agent" else {}
            settings = {**preset, **self.settings}
            if agent_llm is None:
                # As the SDK does without a model to count with.
                settings["max_tokens"] = None
            policy = Policy.openhands(_counter(view, agent_llm), **settings)
        else:
            policy = Policy(self.policy, **self.settings)
        return Condenser(
            policy,
            window=window,
            reserve=reserve,
            tokenizer=self.tokenizer,
            guards=self.guards,
            fallbacks=list(self.fallbacks) if self.guards else [],
            # The model cannot follow an address here: the SDK offers it no tool for that.
            recall=False,
        )

    def _view_of(self, view: SdkView) -> View:
        """The SDK's view as ours: events as they stand, summaries as records, and what is only remembered here."""
        ids = {event.id for event in view.events}
        self._events = {id: event for id, event in self._events.items() if id in ids}
        self._rewrites = {id: rewrite for id, rewrite in self._rewrites.items() if id in ids}
        self._refused = [(id, event) for id, event in self._refused if id in ids]
        ours = View(rules=self.rules)
        refused = dict(self._refused)
        for position, event in enumerate(view.events):
            if isinstance(event, CondensationSummaryEvent) and event.id.endswith(_SUMMARY):
                record = Condensation(summary=event.summary, summary_offset=position)
                ours.push(record.event(event.id.removesuffix(_SUMMARY)))
            else:
                known = self._events.get(event.id)
                if known is None:
                    known = self._events[event.id] = to_event(event)
                ours.push(known)
            if event.id in refused:
                ours.push(refused[event.id])
        if self._rewrites:
            ours.push(Condensation(rewrites=self._rewrites).event(f"rewrites-{uuid.uuid4()}"))
        if view.unhandled_condensation_request:
            ours.push(Event(f"request-{uuid.uuid4()}", "condensation_request", source="environment"))
        return ours

    def _result(self, view: SdkView, ours: View, outcome: Outcome) -> Union[SdkView, SdkCondensation]:
        record = outcome.record
        if record is None:
            refusal = outcome.refusal(f"refusal-{uuid.uuid4()}")
            if refusal is not None and view.events:
                self._refused.append((view.events[-1].id, refusal))
            if outcome.kind == "unachievable" or (outcome.kind != "nothing_to_do" and view.unhandled_condensation_request):
                raise NoCondensationAvailableException(outcome.explain())
            return self._shown(view, ours)
        self._rewrites.update(record.rewrites)
        after = ours.preview(record)
        if not record.forgotten_event_ids and record.summary is None:
            return self._shown(view, after)
        return SdkCondensation(
            forgotten_event_ids=set(record.forgotten_event_ids),
            summary=record.summary,
            summary_offset=_offset(view, ours, after, record),
            llm_response_id=record.llm_response_id or f"condenser-{uuid.uuid4()}",
        )

    def _shown(self, view: SdkView, ours: View) -> SdkView:
        """The SDK's view, with events rewritten as ours has them."""
        changed = {entry.id: entry for entry in ours if entry.is_rewritten}
        if not changed:
            return view
        events = [_rewritten(event, changed[event.id]) if event.id in changed else event for event in view.events]
        return SdkView.model_construct(
            events=events, unhandled_condensation_request=view.unhandled_condensation_request
        )

    def _messages(self, request: SummaryRequest) -> list[Message]:
        return [
            Message(role="system", content=[TextContent(text=request.system)]),
            Message(role="user", content=[TextContent(text=request.input)]),
        ]

    def _summarize(self, request: SummaryRequest) -> Summary:
        assert self.llm is not None
        try:
            response = self.llm.generate(messages=self._messages(request), store=False)
        except Exception as error:
            raise SummarizerError(f"{type(error).__name__}: {error}") from error
        return _summary(response)

    async def _asummarize(self, request: SummaryRequest) -> Summary:
        assert self.llm is not None
        try:
            response = await self.llm.agenerate(messages=self._messages(request), store=False)
        except Exception as error:
            raise SummarizerError(f"{type(error).__name__}: {error}") from error
        return _summary(response)


def _summary(response: LLMResponse) -> Summary:
    """The first part of an answer, as the SDK's own condenser takes it."""
    content = response.message.content
    text = content[0].text if content and isinstance(content[0], TextContent) else ""
    choices = getattr(response.raw_response, "choices", None) or []
    usage = getattr(response.raw_response, "usage", None)
    return Summary(
        text,
        cut_by_length=any(getattr(choice, "finish_reason", None) == "length" for choice in choices),
        tool_call=bool(response.message.tool_calls),
        response_id=response.id,
        input_tokens=int(getattr(usage, "prompt_tokens", 0) or 0),
        output_tokens=int(getattr(usage, "completion_tokens", 0) or 0),
    )


def _offset(view: SdkView, ours: View, after: View, record: Condensation) -> Optional[int]:
    """The place of the summary in the SDK's own list, which may hold entries that our rules left out."""
    ids = [event.id for event in view.events]
    if record.summary is None or record.summary_offset is None or ids == ours.ids:
        return record.summary_offset
    forgotten = set(record.forgotten_event_ids)
    places = {id: place for place, id in enumerate(id for id in ids if id not in forgotten)}
    behind = after.ids[after.ids.index(f"preview{_SUMMARY}") + 1 :]
    return next((places[id] for id in behind if id in places), len(places))


def _counter(view: SdkView, agent_llm: Optional[LLM]) -> Any:
    """Counts messages as the SDK does."""
    tools = next((event.tools for event in view.events if isinstance(event, SystemPromptEvent)), None)

    def count(messages: list[Mapping[str, Any]], offered: list[Any]) -> int:
        if agent_llm is None:
            return 0
        return agent_llm.get_token_count(
            [_message(message) for message in messages],
            tools=(tools or None) if offered else None,
            add_security_risk_prediction=bool(offered),
        )

    return count


def _message(message: Mapping[str, Any]) -> Message:
    calls = message["tool_calls"]
    return Message.model_validate(
        {
            **{name: value for name, value in message.items() if name != "thinking_blocks" and value is not None},
            "tool_calls": calls and [{**call, "origin": "completion"} for call in calls],
            "thinking_blocks": [
                {**block, "type": block["type"]} for block in message["thinking_blocks"] if "type" in block
            ],
        }
    )


class ShadowCondenser(CondenserBase):
    """Runs `host` as it is, and a policy beside it that changes nothing: `reports` says what it would have done.

    Whatever goes wrong on our side stands in the report, and never disturbs the host.
    """

    host: CondenserBase
    """The condenser that acts."""
    ours: PolicyCondenser
    """The one that is compared with it."""

    _reports: list[Union[ShadowReport, CondenserError]] = PrivateAttr(default_factory=list)

    @property
    def reports(self) -> list[Union[ShadowReport, CondenserError]]:
        """A report for each time the host condensed or our policy would have; an error where there is none."""
        return self._reports

    def get_llm(self) -> Optional[LLM]:
        """The host's."""
        return self.host.get_llm()

    def handles_condensation_requests(self) -> bool:
        """Whether the host does."""
        return self.host.handles_condensation_requests()

    def condense(self, view: SdkView, agent_llm: Optional[LLM] = None) -> Union[SdkView, SdkCondensation]:
        """The host's decision."""
        result = self.host.condense(view, agent_llm)
        self._report(view, agent_llm, result)
        return result

    async def acondense(self, view: SdkView, agent_llm: Optional[LLM] = None) -> Union[SdkView, SdkCondensation]:
        """The host's decision."""
        result = await self.host.acondense(view, agent_llm)
        await asyncio.to_thread(self._report, view, agent_llm, result)
        return result

    def _report(self, view: SdkView, agent_llm: Optional[LLM], result: Union[SdkView, SdkCondensation]) -> None:
        host = result if isinstance(result, SdkCondensation) else None
        try:
            report = self.ours.shadow(view, agent_llm, host)
        except Exception as error:
            self._reports.append(CondenserError(f"{type(error).__name__}: {error}"))
            return
        if host is not None or report.ours is None or report.ours.kind != "nothing_to_do":
            self._reports.append(report)


def read_conversation(path: StrPath) -> Trace:
    """Reads a conversation that the SDK persisted: its folder, or that with its events."""
    return read_trace(path, format="openhands-v1")


def write_conversation(
    trace: Trace,
    persistence_dir: StrPath,
    *,
    agent: AgentBase,
    conversation_id: Optional[uuid.UUID] = None,
    workspace: Optional[StrPath] = None,
) -> uuid.UUID:
    """Writes a trace as a conversation that the SDK reopens: `Conversation(agent=…, persistence_dir=…,
    conversation_id=…)`. The id of the conversation, which must be a new one.

    A trace without a system prompt gets the agent's. A trace of the SDK itself names its tools' classes, which the
    program that opens it must have imported."""
    conversation_id = conversation_id or uuid.uuid4()
    folder = Path(persistence_dir) / conversation_id.hex
    if folder.exists():
        raise CondenserError(f"{folder} exists; a conversation is written only once")
    ConversationState.create(
        id=conversation_id,
        agent=agent,
        workspace=LocalWorkspace(working_dir=os.fspath(workspace or Path.cwd())),
        persistence_dir=os.fspath(folder),
    )
    lines = write_traces([trace], "openhands-v1").splitlines()
    if not any(event.kind == "system_prompt" for event in trace.events[:3]):
        # The SDK resumes no conversation without one.
        prompt = SystemPromptEvent(system_prompt=TextContent(text=agent.static_system_message), tools=[])
        lines.insert(0, prompt.model_dump_json(exclude_none=True))
    events = folder / "events"
    events.mkdir(exist_ok=True)
    for number, line in enumerate(lines):
        name = f"event-{number:05}-{json.loads(line)['id']}.json"
        (events / name).write_text(line, encoding="utf-8")
    return conversation_id
