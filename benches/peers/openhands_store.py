"""Times the event store of the OpenHands SDK, a file per event, on a file of event JSON lines.

    pip install openhands-sdk==1.58.2
    OPENHANDS_SUPPRESS_BANNER=1 LITELLM_LOCAL_MODEL_COST_MAP=True python openhands_store.py FILE FOLDER

FOLDER has to be empty. Prints as JSON: microseconds of one append, over all, and the median seconds of opening the
store and rebuilding the view.
"""

import json
import statistics
import sys
import time

from openhands.sdk.context.view import View
from openhands.sdk.conversation.event_store import EventLog
from openhands.sdk.event import Event
from openhands.sdk.io import LocalFileStore


def open_to_view(folder):
    return View.from_events(list(EventLog(LocalFileStore(folder))))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        events = [Event.model_validate_json(line) for line in file]
    folder = sys.argv[2]
    log = EventLog(LocalFileStore(folder))
    start = time.perf_counter()
    for event in events:
        log.append(event)
    append_us = 1e6 * (time.perf_counter() - start) / len(events)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        view = open_to_view(folder)
        times.append(time.perf_counter() - start)
    print(
        json.dumps(
            {
                "events": len(events),
                "shown": len(view.events),
                "append_us": append_us,
                "open_s": statistics.median(times),
            }
        )
    )


if __name__ == "__main__":
    main()
