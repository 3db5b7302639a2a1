"""The condenser, with policies and summarizers of its own and with those written in Python."""

from __future__ import annotations

import asyncio
import threading
import traceback

import pytest
from helpers import call, session

import condenser
from condenser import (
    Condenser,
    CondenserError,
    InvalidInput,
    NoPlan,
    Outcome,
    Plan,
    Policy,
    SummarizerError,
    Summary,
    SummaryRequest,
    View,
)

SMALL = {"window": 2_000, "reserve": 500, "tokenizer": "chars/4"}


class Oldest:
    """Forgets the oldest calls once the request is too large."""

    name = "oldest"

    def __init__(self, ask=False):
        self.ask = ask
        self.asked = 0

    def requirement(self, state):
        return ("soft", ["tokens"]) if state.tokens > state.trigger else None

    def plan(self, state, tried):
        self.asked += 1
        if tried:
            raise NoPlan(tried[-1])
        end = state.previous_index(len(state) // 2)
        gone = state[2:end]
        if not self.ask:
            return Plan(forget=[entry.id for entry in gone])
        ask = SummaryRequest("Summarize.", [(entry.id, entry.text) for entry in gone], max_tokens=200)
        return Plan(forget=[entry.id for entry in gone], offset=2, ask=ask)


def large() -> View:
    view = View(session(20))
    assert view.tokens("chars/4") > 2_000
    return view


@pytest.mark.parametrize("policy", ["recent-events", "llm-summarizing", "observation-masking", Oldest(), Oldest(True)])
@pytest.mark.parametrize("summarizer", ["extractive", lambda request: "All is well."])
def test_a_condensation_makes_the_request_smaller(policy, summarizer):
    view = large()
    outcome = Condenser(policy, **SMALL).run(view, summarizer)
    assert outcome.kind == "applied", outcome.explain()
    before, after = view.tokens("chars/4"), view.preview(outcome.record).tokens("chars/4")
    provenance = outcome.record.provenance
    assert (provenance["tokens_before"], provenance["tokens_after"]) == (before, after) and after < before == outcome.tokens
    assert provenance["policy"] == getattr(policy, "name", policy)
    assert view.push(outcome.record.event("c")) == "condensed" and View.validate(view.request()) == []


def test_nothing_is_done_without_a_reason():
    outcome = Condenser("llm-summarizing", window=100_000).run(large())
    assert outcome.kind == "nothing_to_do" and outcome.record is None and outcome.refusal("f") is None


def test_steps_and_run_give_the_same_record():
    view = large()
    condenser = Condenser("llm-summarizing", **SMALL)
    step = condenser.begin(view, summarizer="<lambda>")
    assert "<EVENT" in step.request.input and step.request.system.startswith(step.request.instructions)
    outcome = step.answer(Summary("All is well.", output_tokens=3))
    assert outcome.summarizer_calls == 1
    by_run = condenser.run(view, lambda request: Summary("All is well.", output_tokens=3))
    assert outcome.record == by_run.record
    with pytest.raises(CondenserError, match="has been answered"):
        step.answer("again")


@pytest.mark.parametrize("failure", [SummarizerError("no"), TimeoutError(), "", Summary("cut", cut_by_length=True)])
def test_a_failed_answer_lets_the_policy_try_again(failure):
    condenser = Condenser("llm-summarizing", **SMALL)
    step = condenser.begin(large()).answer(failure)
    assert not isinstance(step, Outcome)
    outcome = step.answer("All is well.")
    assert outcome.kind == "applied" and outcome.summarizer_calls == 2 and len(outcome.tried) == 1


def test_a_policy_is_asked_once_for_each_decision():
    policy = Oldest(ask=True)
    step = Condenser(policy, **SMALL).begin(large())
    assert policy.asked == 1
    assert step.answer("All is well.").kind == "applied" and policy.asked == 1


def test_what_keeps_failing_is_refused_with_its_reasons():
    def fails(request):
        raise SummarizerError("the model is out")

    view = large()
    outcome = Condenser("llm-summarizing", **SMALL).run(view, fails)
    assert outcome.kind == "unachievable" and "the model is out" in outcome.explain()
    refusal = outcome.refusal("f")
    assert refusal.kind == "condensation_failed"
    view.push(refusal)
    assert Condenser("llm-summarizing", **SMALL).run(view, fails).summarizer_calls == 0
    fallback = Condenser("llm-summarizing", fallbacks=["recent-events"], **SMALL).run(large(), fails)
    assert fallback.kind == "applied"


def test_a_refused_request_is_condensed_harder():
    view = View(session(20))
    condenser = Condenser("recent-events", window=100_000, reserve=500, tokenizer="chars/4")
    assert condenser.run(view).kind == "nothing_to_do"
    view.push(condenser_request())
    outcome = condenser.run(view, limit=2_000)
    assert outcome.kind == "applied" and view.preview(outcome.record).tokens("chars/4") < 2_000


def condenser_request():
    return condenser.Event("q", "condensation_request", source="environment", requested_by="overflow")


class Raises(Oldest):
    def __init__(self, where):
        self.where = where

    def requirement(self, state):
        return self.fall() if self.where == "requirement" else super().requirement(state)

    def plan(self, state, tried):
        return self.fall()

    def fall(self):
        raise KeyError("a slip of the policy")


def fallen(request):
    raise KeyError("a slip of the summarizer")


@pytest.mark.parametrize(
    "policy, summarizer, function",
    [
        (Raises("requirement"), "extractive", "fall"),
        (Raises("plan"), "extractive", "fall"),
        (Policy.pipeline("both", ["none", Raises("plan")]), "extractive", "fall"),
        ("llm-summarizing", fallen, "fallen"),
    ],
)
def test_an_exception_reaches_the_caller_with_its_traceback_and_changes_nothing(policy, summarizer, function):
    log = condenser.Log()
    id = log.create_session("demo")
    log.append(id, session(20))
    view = log.view(id)
    ids, text = view.ids, view.render()
    runner = Condenser(policy, fallbacks=["recent-events"], **SMALL)
    for run in [lambda: runner.run(view, summarizer), lambda: asyncio.run(condenser.run_async(runner, view, wrapped))]:

        async def wrapped(request):
            return summarizer(request)

        with pytest.raises(KeyError, match="a slip") as raised:
            run()
        assert traceback.extract_tb(raised.tb)[-1].name == function
        assert view.ids == ids and view.render() == text and len(log.events(id)) == len(session(20))


@pytest.mark.parametrize(
    "answer, message",
    [
        ("odd", "None, \"soft\" or \"hard\""),
        (("soft", ["odd"]), "odd"),
    ],
)
def test_an_answer_of_another_shape_is_refused(answer, message):
    class Odd(Oldest):
        def requirement(self, state):
            return answer

    with pytest.raises(InvalidInput, match=message):
        Condenser(Odd(), **SMALL).run(large())


def test_a_plan_of_another_shape_is_refused():
    class Odd(Oldest):
        def plan(self, state, tried):
            return ["a0"]

    with pytest.raises(TypeError):
        Condenser(Odd(), **SMALL).run(large())
    with pytest.raises(InvalidInput, match="offset"):
        Plan(summary="s")
    with pytest.raises(InvalidInput, match="answers with"):
        Condenser("llm-summarizing", **SMALL).run(large(), lambda request: 3)
    with pytest.raises(AttributeError):
        Condenser(object())


def test_an_illegal_plan_is_refused_and_said():
    seen = []

    class Tears(Oldest):
        def plan(self, state, tried):
            seen.extend(tried)
            if tried:
                raise NoPlan
            return Plan(forget=["a0", "a3r"])

    outcome = Condenser(Tears(), **SMALL).run(large())
    assert outcome.kind == "failed" and "tear apart" in seen[0] and outcome.tried == seen


def test_a_state_is_gone_once_the_policy_has_answered():
    kept = []

    class Keeps(Oldest):
        def requirement(self, state):
            kept.extend([state, state[0]])
            assert len(state) == 42 and state[0].kind == "system_prompt" and state.retained < state.trigger
            assert sum(state.entry_tokens) <= state.tokens and state.budgets["window"]["tokens"] == 2_000
            return super().requirement(state)

    Condenser(Keeps(), **SMALL).run(large())
    for read in [lambda: kept[0].tokens, lambda: kept[1].text, lambda: len(kept[0])]:
        with pytest.raises(CondenserError, match="this state is gone"):
            read()
    assert repr(kept[0]) == "State(gone)"


def test_a_policy_may_run_another_condenser_meanwhile():
    class Nested(Oldest):
        def plan(self, state, tried):
            inner = Condenser(Oldest(), **SMALL).run(large())
            assert len(state) == 42
            return Plan(forget=inner.record.forgotten_event_ids)

    assert Condenser(Nested(), **SMALL).run(large()).kind == "applied"


def test_a_policy_rewrites_and_the_view_shows_it():
    class Masks(Oldest):
        def plan(self, state, tried):
            results = [entry for entry in state if entry.kind == "observation"][:-2]
            return Plan(rewrites={entry.id: {"op": "clear", "text": "[gone]"} for entry in results})

    view = large()
    view.push(Condenser(Masks(), **SMALL).run(view).record.event("c"))
    assert view[3].text == "[gone]" and view[3].is_rewritten and view[3].event.text.startswith("line 0")


def test_secrets_are_kept_from_the_summarizer():
    events = session(20)
    events[2:2] = call("k", result="the key is sk-ant-api03-" + "a1B2" * 20)
    seen = []

    def summarizer(request):
        seen.append(request.input)
        return "All is well."

    Condenser("llm-summarizing", **SMALL).run(View(events), summarizer)
    assert "a1B2a1B2" not in seen[0] and "the key is" in seen[0]


def test_asyncio_goes_on_during_a_condensation():
    ticks = []

    async def main():
        async def tick():
            while True:
                ticks.append(1)
                await asyncio.sleep(0)

        async def summarizer(request):
            before = len(ticks)
            while len(ticks) < before + 10:
                await asyncio.sleep(0)
            return "All is well."

        ticking = asyncio.create_task(tick())
        outcome = await condenser.run_async(Condenser("llm-summarizing", **SMALL), large(), summarizer)
        ticking.cancel()
        return outcome

    outcome = asyncio.run(main())
    assert outcome.kind == "applied" and outcome.record.provenance["summarizer"] == "summarizer" and len(ticks) > 10


def test_a_slow_summarizer_is_a_failed_try():
    async def slow(request):
        await asyncio.Event().wait()

    outcome = asyncio.run(condenser.run_async(Condenser("llm-summarizing", **SMALL), large(), slow, timeout=0.01))
    assert outcome.kind == "unachievable" and "in time" in outcome.explain()


def test_cancelling_records_nothing():
    async def main():
        started = asyncio.Event()

        async def waits(request):
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(condenser.run_async(Condenser("llm-summarizing", **SMALL), view, waits))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    view = large()
    ids = view.ids
    asyncio.run(main())
    assert view.ids == ids


def test_shadow_mode_compares_and_changes_nothing():
    view = large()
    host = condenser.Condensation({"a0", "a0r", "a1", "a1r"}, "Two calls.", 2)
    report = Condenser(Oldest(), **SMALL).shadow(view, host)
    assert report.ours.kind == "applied" and report.both == ["a0", "a0r", "a1", "a1r"] and not report.only_host
    assert report.after_ours < report.after_host < report.before == view.tokens("chars/4")
    raising = Condenser(Raises("plan"), **SMALL).shadow(view, host)
    assert raising.ours is None and "a slip" in raising.error and raising.after_host == report.after_host


def test_threads_condense_at_once():
    outcomes = []

    def work():
        outcomes.append(Condenser(Oldest(True), **SMALL).run(large(), lambda request: "All is well.").kind)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["applied"] * 4
