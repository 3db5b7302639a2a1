"""Times the OpenHands SDK on a file of event JSON lines: parsing, rebuilding a view, one append with the next cut.

    pip install openhands-sdk==1.58.2
    OPENHANDS_SUPPRESS_BANNER=1 LITELLM_LOCAL_MODEL_COST_MAP=True python openhands_view.py FILE [APPENDS_AT ...]

Prints medians as JSON: microseconds an event for parsing, milliseconds for a rebuild, and by view length the
microseconds of one append with the indices after it.
"""

import json
import statistics
import sys
import time

from openhands.sdk.context.view import View
from openhands.sdk.event import Event


def median_seconds(run, n=7):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = file.read().splitlines()
    parse = lambda: [Event.model_validate_json(line) for line in lines]
    events = parse()
    lengths = [int(length) for length in sys.argv[2:]]
    print(
        json.dumps(
            {
                "events": len(events),
                "shown": len(View.from_events(events).events),
                "parse_us_per_event": 1e6 * median_seconds(parse, 3) / len(events),
                "rebuild_ms": 1e3 * median_seconds(lambda: View.from_events(events)),
                "append_us": {length: 1e6 * append_seconds(events, length) for length in lengths},
            }
        )
    )


def append_seconds(events, length):
    view = View(events=events[:length])
    following = iter(events[length:])

    def append():
        view.append_event(next(following))
        view.manipulation_indices.find_next(length // 2)

    return median_seconds(append)


if __name__ == "__main__":
    main()
