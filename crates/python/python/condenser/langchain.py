"""condenser inside LangChain agents, as a middleware. Needs the extra `langchain`.

`create_agent(..., middleware=[CondenserMiddleware("llm-summarizing", window=32_000)])`. The messages in the agent's
state are the log: they stay as they are. Condensation records stand beside them in the state, are checkpointed with it,
and only what the model is shown is a view. Forgetting is never losing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any, Optional, Union, cast

from langchain.agents.middleware.types import AgentMiddleware, AgentState, ModelRequest, ModelResponse, PrivateStateAttr
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from typing_extensions import NotRequired

from ._async import run_async
from ._native import Condenser, Entry, Event, Outcome, SummarizerError, Summary, SummaryRequest, View
from ._types import AnyPolicy, Rules, Summarizer

__all__ = ["CondenserMiddleware", "CondenserState", "to_events"]


class CondenserState(AgentState[Any]):
    """The agent's state, with the records of condensations."""

    condenser_records: NotRequired[Annotated[list[dict[str, Any]], PrivateStateAttr]]


def _blocks(content: Any) -> list[dict[str, Any]]:
    """Content blocks of ours. What is no text and no image is kept as it is."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks: list[dict[str, Any]] = []
    for block in content:
        if isinstance(block, str):
            blocks.append({"type": "text", "text": block})
        elif block.get("type") == "text":
            blocks.append({"type": "text", "text": block.get("text", "")})
        elif block.get("type") == "image_url":
            url = block["image_url"]
            blocks.append({"type": "image", "urls": [url if isinstance(url, str) else url["url"]]})
        elif block.get("type") != "tool_use":
            blocks.append({"type": "other", "value": block})
    return blocks


def to_events(message: BaseMessage) -> list[Event]:
    """A message as events: one, or one for each call that it makes. The first has the message's id."""
    id = message.id or str(uuid.uuid4())
    content = _blocks(message.content)
    if isinstance(message, ToolMessage):
        outcome = "error" if message.status == "error" else "ok"
        return [
            Event(id, "observation", source="environment", call_id=message.tool_call_id, tool_name=message.name or "",
                  content=content, outcome=outcome)
        ]  # fmt: skip
    if isinstance(message, AIMessage):
        calls = [(call["id"], call["name"], json.dumps(call["args"])) for call in message.tool_calls]
        calls += [(call["id"], call["name"] or "", call["args"] or "") for call in message.invalid_tool_calls]
        if not calls:
            return [Event(id, "message", source="agent", role="assistant", content=content, response_id=id)]
        return [
            Event(f"{id}#{at}" if at else id, "action", source="agent", call_id=call_id or f"{id}-{at}", tool_name=name,
                  arguments=arguments, thought=[] if at else content, response_id=id)
            for at, (call_id, name, arguments) in enumerate(calls)
        ]  # fmt: skip
    if isinstance(message, SystemMessage):
        return [Event(id, "system_prompt", source="agent", content=content)]
    return [Event(id, "message", source="user", role="user", content=content)]


class CondenserMiddleware(AgentMiddleware[CondenserState, Any, Any]):
    """Runs a policy of condenser before each call of the model, and shows the model the view.

    `policy` is a name, a `Policy`, or one written in Python. `summarizer` is a chat model, `extractive`, `heuristic`,
    or a function of a `SummaryRequest`. All other keywords are those of `Condenser`; `window` in tokens is what
    makes policies act, and the system prompt and the tools count.
    """

    state_schema = CondenserState

    def __init__(
        self,
        policy: AnyPolicy = "llm-summarizing",
        *,
        summarizer: Union[BaseChatModel, Summarizer] = "extractive",
        rules: Rules = "sound",
        **condenser: Any,
    ) -> None:
        super().__init__()
        # The model cannot follow an address: the agent has no tool for that.
        self._condenser = Condenser(policy, **{"recall": False, **condenser})
        self._model = summarizer if isinstance(summarizer, BaseChatModel) else None
        self._summarizer = summarizer
        self._rules: Rules = rules
        self._prompt: Optional[Event] = None

    def before_model(self, state: CondenserState, runtime: Any) -> Optional[dict[str, Any]]:
        """Condenses where the policy wants to."""
        view = self._view(state)
        summarizer = self._ask if self._model else self._summarizer
        return self._update(state, self._condenser.run(view, summarizer))  # type: ignore[arg-type]

    async def abefore_model(self, state: CondenserState, runtime: Any) -> Optional[dict[str, Any]]:
        """The same without blocking the event loop."""
        if self._model is None:
            import asyncio

            return await asyncio.to_thread(self.before_model, state, runtime)
        return self._update(state, await run_async(self._condenser, self._view(state), self._aask))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Shows the model the view."""
        return handler(self._shown(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Shows the model the view."""
        return await handler(self._shown(request))

    def view(self, messages: Sequence[AnyMessage], records: Iterable[dict[str, Any]] = ()) -> View:
        """The view of messages and of the records that stand in the state under `condenser_records`."""
        view = View(rules=self._rules)
        if self._prompt is not None:
            view.push(self._prompt)
        pending = list(records)
        for position, message in enumerate(messages):
            while pending and pending[0]["after"] <= position:
                view.push(Event.from_dict(pending.pop(0)["event"]))
            for event in to_events(message):
                view.push(event)
        for record in pending:
            view.push(Event.from_dict(record["event"]))
        return view

    def _view(self, state: CondenserState) -> View:
        return self.view(state["messages"], state.get("condenser_records") or ())

    def _update(self, state: CondenserState, outcome: Outcome) -> Optional[dict[str, Any]]:
        id = f"condenser-{uuid.uuid4()}"
        event = outcome.refusal(id) if outcome.record is None else outcome.record.event(id)
        if event is None:
            return None
        kept = {"after": len(state["messages"]), "event": event.to_dict()}
        return {"condenser_records": [*(state.get("condenser_records") or ()), kept]}

    def _shown(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        # System prompt and tools are known here only; they are the same from call to call.
        prompt = request.system_message
        tools = [tool if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in request.tools]
        if prompt is not None or tools:
            content = _blocks(prompt.content) if prompt is not None else []
            self._prompt = Event("condenser-prompt", "system_prompt", source="agent", content=content, tools=tools)
        records = cast("list[dict[str, Any]]", request.state.get("condenser_records") or [])
        if not records:
            return request
        messages = {message.id: message for message in request.messages if message.id}
        return request.override(messages=_messages(self.view(request.messages, records), messages))

    def _ask(self, request: SummaryRequest) -> Summary:
        assert self._model is not None
        try:
            return _summary(self._model.invoke(_prompt(request)))
        except Exception as error:
            raise SummarizerError(f"{type(error).__name__}: {error}") from error

    async def _aask(self, request: SummaryRequest) -> Summary:
        assert self._model is not None
        try:
            return _summary(await self._model.ainvoke(_prompt(request)))
        except Exception as error:
            raise SummarizerError(f"{type(error).__name__}: {error}") from error


def _prompt(request: SummaryRequest) -> list[BaseMessage]:
    return [SystemMessage(request.system), HumanMessage(request.input)]


def _summary(answer: BaseMessage) -> Summary:
    usage = getattr(answer, "usage_metadata", None) or {}
    reason = answer.response_metadata.get("finish_reason") or answer.response_metadata.get("stop_reason")
    return Summary(
        str(answer.text),
        cut_by_length=reason in ("length", "max_tokens"),
        tool_call=bool(getattr(answer, "tool_calls", None)),
        response_id=answer.id,
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
    )


def _messages(view: View, stored: dict[str, AnyMessage]) -> list[AnyMessage]:
    """The messages of a view: those that are stored, where nothing changed them."""
    messages: list[AnyMessage] = []
    for entry in view:
        if entry.is_summary:
            messages.append(HumanMessage(entry.text, id=entry.id))
            continue
        base, _, part = entry.id.partition("#")
        message = stored.get(entry.id) or stored.get(base)
        if message is None:
            continue  # The prompt, which is not among the messages.
        if entry.kind == "action" and part and messages and messages[-1].id == message.id:
            if entry.is_rewritten:
                messages[-1] = _rewritten(messages[-1], entry, int(part))
        else:
            messages.append(_rewritten(message, entry, 0) if entry.is_rewritten else message)
    return messages


def _rewritten(message: AnyMessage, entry: Entry, part: int) -> AnyMessage:
    """The message with what a record put in the place of its content, or of the arguments of one call."""
    shown = entry.shown()
    if not isinstance(message, AIMessage) or entry.kind != "action":
        return message.model_copy(update={"content": _content(shown)})
    calls = list(message.tool_calls)
    update: dict[str, Any] = {} if part else {"content": _content(shown)}
    if part < len(calls):
        try:
            calls[part] = {**calls[part], "args": json.loads(shown["arguments"])}
        except ValueError:
            calls[part] = {**calls[part], "args": {}}
        update["tool_calls"] = calls
    return message.model_copy(update=update)


def _content(shown: dict[str, Any]) -> Union[str, list[Any]]:
    blocks = [*shown.get("content", ()), *shown.get("thought", ()), *shown.get("extended_content", ())]
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    content: list[Any] = []
    for block in blocks:
        if block["type"] == "text":
            content.append({"type": "text", "text": block["text"]})
        elif block["type"] == "image":
            content.extend({"type": "image_url", "image_url": {"url": url}} for url in block["urls"])
        else:
            content.append(block.get("value", block))
    return content
