"""Opens conversations as the OpenHands SDK does: stores the events of each file, opens the store, makes the messages.

    pip install openhands-sdk==1.58.2
    OPENHANDS_SUPPRESS_BANNER=1 LITELLM_LOCAL_MODEL_COST_MAP=True python openhands_open.py FILE...

Prints a line per file: events, entries of the view, messages, or what went wrong. Fails if anything did.
"""

import logging
import sys
import tempfile

from openhands.sdk.context.view import View
from openhands.sdk.conversation.event_store import EventLog
from openhands.sdk.event import Event, LLMConvertibleEvent
from openhands.sdk.io import LocalFileStore


def open_file(path):
    with open(path, encoding="utf-8") as file:
        events = [Event.model_validate_json(line) for line in file]
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(LocalFileStore(folder))
        for event in events:
            log.append(event)
        stored = list(EventLog(LocalFileStore(folder)))
    if [event.id for event in stored] != [event.id for event in events]:
        raise ValueError("the store gives other events back")
    view = View.from_events(stored)
    messages = LLMConvertibleEvent.events_to_messages(view.events)
    return f"{len(stored)} events, {len(view.events)} shown, {len(messages)} messages"


def main():
    logging.disable(logging.WARNING)
    failures = 0
    for path in sys.argv[1:]:
        try:
            print(f"{path}: {open_file(path)}")
        except Exception as error:
            failures += 1
            print(f"{path}: {type(error).__name__}: {str(error)[:400]}")
    print(f"{len(sys.argv) - 1} conversations, {failures} not opened")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
