"""The condenser in an asyncio program."""

from __future__ import annotations

import asyncio
from typing import Optional, Union

from ._native import Condenser, Outcome, SummarizerError, Summary, View
from ._types import AsyncSummarizer


async def run_async(
    condenser: Condenser,
    view: View,
    summarizer: AsyncSummarizer,
    *,
    timeout: Optional[float] = None,
    too_long: bool = False,
    limit: Optional[int] = None,
) -> Outcome:
    """Runs a condensation to its end without blocking the event loop.

    `summarizer` is awaited for each summary, for `timeout` seconds at most. `SummarizerError` and a time-out are
    failed tries, after which the policy is asked again; any other exception reaches the caller, and nothing is
    recorded. Cancelling records nothing. `too_long` and `limit` are those of `Condenser.run`.
    """
    name = getattr(summarizer, "name", None) or getattr(summarizer, "__name__", "python")
    step = await asyncio.to_thread(condenser.begin, view, summarizer=name, too_long=too_long, limit=limit)
    while not isinstance(step, Outcome):
        answer: Union[str, Summary, SummarizerError, TimeoutError]
        try:
            answer = await asyncio.wait_for(summarizer(step.request), timeout)
        except (asyncio.TimeoutError, TimeoutError):
            answer = TimeoutError("the summarizer did not answer in time")
        except SummarizerError as error:
            answer = error
        step = await asyncio.to_thread(step.answer, answer)
    return step
