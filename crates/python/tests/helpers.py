"""What the tests share."""

from __future__ import annotations

from pathlib import Path

from condenser import Event

ROOT = Path(__file__).resolve().parents[3]
TRACES = ROOT / "fixtures" / "traces"


def say(id: str, text: str = "", *, role: str = "user") -> Event:
    """A message."""
    return Event(id, "message", source="user" if role == "user" else "agent", role=role, content=text or f"text {id}")


def call(id: str, *, result: str = "done", n: int = 1) -> list[Event]:
    """A tool call and its result."""
    return [
        Event(id, "action", source="agent", call_id=f"c-{id}", tool_name="shell", arguments="{}", response_id=f"r-{id}"),
        Event(f"{id}r", "observation", source="environment", call_id=f"c-{id}", tool_name="shell", content=result * n),
    ]


def session(n: int = 20, *, words: int = 200) -> list[Event]:
    """A prompt, a question and `n` calls."""
    events = [Event("s", "system_prompt", source="agent", content="You are an agent."), say("u", "Fix the build.")]
    for at in range(n):
        events += call(f"a{at}", result=f"line {at} of the output ", n=words // 5)
    return events
