"""A policy in thirty lines, beside two others: python examples/keep_decisions.py [TRACES]"""

import sys
from typing import Optional

import condenser
from condenser import NoPlan, Plan, State


class KeepDecisions:
    """Once the request is too large, forgets the oldest results, and never what the agent said or was told."""

    name = "keep-decisions"

    def requirement(self, state: State) -> Optional[tuple[str, list[str]]]:
        is_large = state.trigger is not None and state.tokens > state.trigger
        return ("soft", ["tokens"]) if is_large else None

    def plan(self, state: State, tried: list[str]) -> Optional[Plan]:
        if tried:
            raise NoPlan("there is only one way")
        too_many = state.tokens - (state.retained or 0)
        rewrites = {}
        for entry, tokens in zip(state, state.entry_tokens):
            if too_many > 0 and entry.kind == "observation" and not entry.is_rewritten and tokens > 20:
                address = f"[event {entry.id}]" if state.recall else "[left out]"
                rewrites[entry.id] = {"op": "clear", "text": address}
                too_many -= tokens
        return Plan(rewrites=rewrites) if rewrites else None


if __name__ == "__main__":
    traces = sys.argv[1] if len(sys.argv) > 1 else "fixtures/traces"
    print(condenser.compare(traces, ["none", "observation-masking", KeepDecisions()], window=8_000))
