"""Times condenser's Python module beside the OpenHands SDK on the same events, in one process.

    cargo run --release -p condenser-benches --bin generate 10000 100 > events.jsonl
    pip install openhands-sdk==1.58.2 && pip install ./crates/python
    OPENHANDS_SUPPRESS_BANNER=1 LITELLM_LOCAL_MODEL_COST_MAP=True python benches/peers/openhands_python.py events.jsonl

Prints medians in milliseconds and their ratios, as rows of a table. Fails if the views differ.
"""

import logging
import statistics
import sys
import time

from openhands.sdk.context.view import View as SdkView
from openhands.sdk.event import Event as SdkEvent

from condenser import View
from condenser.openhands import build_view, to_event


def median_ms(run, n=7):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main():
    logging.disable(logging.WARNING)
    with open(sys.argv[1], encoding="utf-8") as file:
        text = file.read()
    lines = text.splitlines()
    events = [SdkEvent.model_validate_json(line) for line in lines]
    sdk = SdkView.from_events(events)
    ids = [event.id for event in sdk.events]
    for view in (View.from_openhands_json(text), View.from_openhands_objects(events)):
        if (view.ids, view.manipulation_indices) != (ids, sorted(sdk.manipulation_indices)):
            sys.exit("the views differ")
    if [event.id for event in build_view(events).events] != ids:
        sys.exit("the views differ")

    rebuild = median_ms(lambda: SdkView.from_events(events))
    parse = median_ms(lambda: [SdkEvent.model_validate_json(line) for line in lines], 3)
    print(f"{len(events)} events, {len(ids)} shown")
    for name, theirs, ours in [
        ("JSON text to view", parse + rebuild, median_ms(lambda: View.from_openhands_json(text))),
        ("event objects to view", rebuild, median_ms(lambda: View.from_openhands_objects(events))),
        ("event objects to the SDK's own view class", rebuild, median_ms(lambda: build_view(events))),
        (
            "event objects to whole events to view",
            rebuild,
            median_ms(lambda: View([to_event(event) for event in events], rules="openhands"), 3),
        ),
    ]:
        print(f"| {name} | {theirs:.2f} ms | {ours:.2f} ms | {theirs / ours:.1f} |")


if __name__ == "__main__":
    main()
