"""LangChain agents with the middleware, and a scripted model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langchain")

from langchain.agents import create_agent  # noqa: E402
from langchain_core.language_models import BaseChatModel  # noqa: E402
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage  # noqa: E402
from langchain_core.outputs import ChatGeneration, ChatResult  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

import condenser  # noqa: E402
from condenser import Plan  # noqa: E402
from condenser.langchain import CondenserMiddleware, to_events  # noqa: E402


@tool
def look(page: int) -> str:
    """Looks at a page."""
    return f"page {page}: " + "lorem ipsum " * 60


class Model(BaseChatModel):
    """Looks at two pages at each step, and keeps what it was shown."""

    steps: int
    shown: list[list[BaseMessage]] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> "Model":
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.shown.append(messages)
        n = len(self.shown)
        calls = [{"name": "look", "args": {"page": 2 * n + at}, "id": f"c{n}-{at}"} for at in range(2)]
        message = AIMessage(f"step {n}", tool_calls=calls if n % self.steps else [])
        return ChatResult(generations=[ChatGeneration(message=message)])


class Writer(Model):
    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.shown.append(messages)
        message = AIMessage(f"Summary {len(self.shown)}.")
        return ChatResult(generations=[ChatGeneration(message=message)])


def texts(messages: list[BaseMessage]) -> str:
    return "\n".join(str(message.text) for message in messages)


def check_pairs(messages: list[BaseMessage]) -> None:
    """Every result follows its call, and every call has one."""
    open_calls: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            open_calls.remove(message.tool_call_id)
            continue
        assert not open_calls
        if isinstance(message, AIMessage):
            open_calls = {call["id"] for call in message.tool_calls}


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_stays_within_its_window_and_forgets_nothing(is_async):
    model, writer = Model(steps=60), Writer(steps=1)
    middleware = CondenserMiddleware("llm-summarizing", summarizer=writer, window=8_000, reserve=1_000, tokenizer="chars/4")
    agent = create_agent(model, [look], system_prompt="You look.", middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": 1000}
    ask = {"messages": [HumanMessage("Look at all pages.")]}
    state = asyncio.run(agent.ainvoke(ask, config)) if is_async else agent.invoke(ask, config)
    assert len(model.shown) == 60 and len(writer.shown) > 2
    for shown in model.shown:
        assert len(texts(shown)) // 4 < 7_000 and isinstance(shown[0], SystemMessage)
        check_pairs(shown[1:])
    assert "Summary" in texts(model.shown[-1]) and "Look at all pages." in texts(model.shown[-1])
    assert sum(isinstance(message, ToolMessage) for message in state["messages"]) == 118
    assert "condenser_records" not in state

    # The records are checkpointed: the next turn goes on from the same view.
    agent.invoke({"messages": [HumanMessage("Once more.")]}, config)
    first = model.shown[60]
    assert "Once more." in texts(first) and "Summary" in texts(first) and len(texts(first)) // 4 < 7_000
    assert len(agent.get_state(config).values["condenser_records"]) >= len(writer.shown)


def test_masked_results_are_shown_masked_and_stored_whole():
    model = Model(steps=20)
    agent = create_agent(model, [look], middleware=[CondenserMiddleware("observation-masking", window=100_000, tokenizer="chars/4")])
    state = agent.invoke({"messages": [HumanMessage("Look.")]}, {"recursion_limit": 1000})
    results = [message for message in model.shown[-1] if isinstance(message, ToolMessage)]
    assert len(results) == 38 and "lorem" not in results[0].text and "lorem" in results[-1].text
    assert all("lorem" in message.text for message in state["messages"] if isinstance(message, ToolMessage))
    check_pairs(model.shown[-1])


def test_a_policy_written_in_python_runs_and_its_exceptions_reach_the_caller():
    class Last:
        name = "last"

        def requirement(self, state):
            return "soft" if len(state) > 12 else None

        def plan(self, state, tried):
            return Plan(forget=state.ids[1 : state.previous_index(len(state) - 4)], summary="Looked.", offset=1)

    model = Model(steps=20)
    agent = create_agent(model, [look], middleware=[CondenserMiddleware(Last())])
    agent.invoke({"messages": [HumanMessage("Look.")]}, {"recursion_limit": 1000})
    assert max(map(len, model.shown)) <= 12 and "Looked." in texts(model.shown[-1])

    class Falls(Last):
        def plan(self, state, tried):
            raise KeyError("a slip")

    with pytest.raises(KeyError, match="a slip"):
        create_agent(Model(steps=20), [look], middleware=[CondenserMiddleware(Falls())]).invoke(
            {"messages": [HumanMessage("Look.")]}, {"recursion_limit": 1000}
        )


def test_a_model_that_fails_leaves_the_messages_as_they_are():
    class Broken(Writer):
        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            self.shown.append(messages)
            raise RuntimeError("out")

    model, broken = Model(steps=12), Broken(steps=1)
    middleware = CondenserMiddleware("llm-summarizing", summarizer=broken, window=5_500, reserve=500, tokenizer="chars/4")
    agent = create_agent(model, [look], middleware=[middleware])
    agent.invoke({"messages": [HumanMessage("Look.")]}, {"recursion_limit": 1000})
    # A failed attempt waits for growth.
    assert 0 < len(broken.shown) < 60 and len(model.shown[-1]) == 1 + 11 * 3


def test_messages_become_events():
    message = AIMessage(
        [{"type": "text", "text": "look"}], id="m", tool_calls=[{"name": "a", "args": {"x": 1}, "id": "1"}],
        invalid_tool_calls=[{"name": "b", "args": "{", "id": "2", "error": None}],
    )  # fmt: skip
    events = to_events(message)
    assert [(event.id, event.kind, event.call_id, event.response_id) for event in events] == [
        ("m", "action", "1", "m"), ("m#1", "action", "2", "m"),
    ]  # fmt: skip
    assert events[0].text == 'look\n{"x": 1}' and events[1].text == "{"
    image = HumanMessage([{"type": "image_url", "image_url": {"url": "data:x"}}, {"type": "file", "id": "f"}], id="h")
    assert to_events(image)[0].to_dict()["content"] == [{"type": "image", "urls": ["data:x"]}, {"type": "file", "id": "f"}]
    failed = to_events(ToolMessage("no", tool_call_id="1", id="t", status="error"))[0]
    assert failed.kind == "observation" and failed.to_dict()["outcome"] == "error"
    assert condenser.View([*events, failed]).ids == ["m", "m#1", "t"]
