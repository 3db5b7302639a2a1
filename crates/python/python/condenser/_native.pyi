from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional, Union, final, overload

from ._types import AnyPolicy, Answer, Api, OutcomeKind, Row, Rules, StrPath, Summarizer

__version__: str

class CondenserError(Exception):
    """Whatever goes wrong in condenser."""

class InvalidInput(CondenserError):
    """An argument, an event or a setting is not as it has to be."""

class ReadError(CondenserError):
    """A trace cannot be read or written."""

class LogError(CondenserError):
    """The event log refuses, or cannot be read or written."""

class StaleError(LogError):
    """The log has moved on: a condensation has to be decided anew."""

class SummarizerError(CondenserError):
    """Raised by a summarizer: no summary this time; the policy is asked again."""

class NoPlan(CondenserError):
    """Raised by a policy: nothing can be done."""

@final
class Event:
    """One thing that happened: a message, a tool call, its result, a condensation. Never changed afterwards.

    `Event(id, kind, source=..., **fields)` takes the fields of the event's JSON; a text as `content` or `thought`
    stands for one text block."""

    def __new__(cls, id: str, kind: str, *, source: str, **fields: Any) -> Event: ...
    @classmethod
    def from_dict(cls, data: Any) -> Event:
        """An event from its JSON as Python data."""

    @classmethod
    def from_json(cls, json: Union[str, bytes]) -> Event:
        """An event from its JSON text."""

    @classmethod
    def from_openhands(cls, event: Any, *, strict: bool = False) -> Event:
        """An event from one of the OpenHands SDK, as JSON text or as data. `strict` refuses what the SDK refuses."""

    @property
    def id(self) -> str:
        """The id."""

    @property
    def kind(self) -> str:
        """The kind: `message`, `action`, `observation`, `condensation` and so on."""

    @property
    def source(self) -> str:
        """Who made it: `agent`, `user`, `environment` or `hook`."""

    @property
    def parent(self) -> Optional[str]:
        """The event before it on its branch; `None` for a root, or where the log order is the branch."""

    @property
    def timestamp(self) -> Optional[str]:
        """When it happened, as the source wrote it."""

    @property
    def call_id(self) -> Optional[str]:
        """The call that an action makes or an observation answers."""

    @property
    def tool_name(self) -> Optional[str]:
        """The tool of an action or an observation."""

    @property
    def response_id(self) -> Optional[str]:
        """The model response that it belongs to."""

    @property
    def text(self) -> str:
        """All text that a request can show of it, one block a line; thinking is left out."""

    @property
    def condensation(self) -> Optional[Condensation]:
        """The record of a condensation, else `None`."""

    def to_dict(self) -> dict[str, Any]:
        """Its JSON as Python data."""

    def to_json(self) -> str:
        """Its JSON text."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Condensation:
    """A record: what later views leave out, rewrite and summarize."""

    def __new__(
        cls,
        forgotten_event_ids: Optional[Iterable[str]] = None,
        summary: Optional[str] = None,
        summary_offset: Optional[int] = None,
        *,
        llm_response_id: Optional[str] = None,
        rewrites: Optional[dict[str, dict[str, Any]]] = None,
    ) -> Condensation: ...
    @classmethod
    def from_dict(cls, data: Any) -> Condensation:
        """A record from its JSON as Python data."""

    @classmethod
    def from_json(cls, json: Union[str, bytes]) -> Condensation:
        """A record from its JSON text."""

    @property
    def forgotten_event_ids(self) -> list[str]:
        """The ids of the entries that leave the view, sorted."""

    @property
    def summary(self) -> Optional[str]:
        """What stands for them."""

    @property
    def summary_offset(self) -> Optional[int]:
        """Where the summary goes, counted in the view after forgetting."""

    @property
    def llm_response_id(self) -> Optional[str]:
        """The response that wrote the summary."""

    @property
    def rewrites(self) -> dict[str, dict[str, Any]]:
        """The changes of content, by id."""

    @property
    def provenance(self) -> Optional[dict[str, Any]]:
        """How the record came to be: policy, sizes, reasons, basis; `None` where that is not recorded."""

    def event(self, id: str) -> Event:
        """The event that carries this record."""

    def to_dict(self) -> dict[str, Any]:
        """Its JSON as Python data."""

    def to_json(self) -> str:
        """Its JSON text."""

    def __eq__(self, other: object, /) -> bool: ...

@final
class Entry:
    """One entry of a view."""

    @property
    def id(self) -> str:
        """The event's id, or `<condensation id>-summary`."""

    @property
    def index(self) -> int:
        """The position in the view."""

    @property
    def seq(self) -> int:
        """The position in the log of the event, or of the condensation that made the summary."""

    @property
    def kind(self) -> str:
        """`system_prompt`, `message`, `action` or `observation`; a summary is a message."""

    @property
    def is_summary(self) -> bool:
        """Whether this is a summary."""

    @property
    def is_rewritten(self) -> bool:
        """Whether a record changed its content."""

    @property
    def is_pinned(self) -> bool:
        """Whether it is pinned."""

    @property
    def is_protected(self) -> bool:
        """Whether no policy may forget it."""

    @property
    def is_open(self) -> bool:
        """Whether this is a call without an answer."""

    @property
    def group(self) -> Optional[int]:
        """The number of the batch or loop that it can only leave with, under the rules `sound`."""

    @property
    def text(self) -> str:
        """Its text as the model is shown it."""

    @property
    def event(self) -> Optional[Event]:
        """The stored event behind it; `None` for a summary."""

    def shown(self) -> dict[str, Any]:
        """What the model is shown of it, as the JSON of an event's kind; a summary gives `{"summary": text}`."""

@final
class View:
    """The entries that a model is shown, oldest first: a log's events once its condensations have been applied."""

    def __new__(cls, events: Optional[Iterable[Event]] = None, *, rules: Rules = "sound") -> View: ...
    @classmethod
    def from_openhands_json(cls, lines: Union[str, bytes], *, rules: Rules = "openhands") -> View:
        """The view of OpenHands SDK events, from their JSON text, one a line. Only headers are read; the rest of an
        event is read once it is asked for."""

    @classmethod
    def from_openhands_objects(cls, events: Iterable[Any], *, rules: Rules = "openhands") -> View:
        """The view of event objects of the OpenHands SDK. Only their headers are read, and so there are no requests
        and no texts: an entry's `seq` is the position of its event in the list."""

    def push(self, event: Event) -> str:
        """Adds the next event of the log: `shown`, `hidden`, `left_out` or `condensed`."""

    def preview(self, record: Condensation, *, id: str = "preview") -> View:
        """The view as it would be with one more condensation; this one does not change."""

    def copy(self) -> View:
        """A copy that goes its own way."""

    @property
    def rules(self) -> Rules:
        """`sound` or `openhands`."""

    @property
    def ids(self) -> list[str]:
        """The ids of the entries, oldest first."""

    @property
    def records(self) -> list[str]:
        """The ids of the condensations in force, oldest first."""

    @property
    def n_pushed(self) -> int:
        """Events pushed so far, hidden and forgotten ones included."""

    @property
    def unhandled_condensation_request(self) -> bool:
        """Whether somebody asked for a condensation and none has followed."""

    @property
    def manipulation_indices(self) -> list[int]:
        """The positions before which the view may be cut."""

    def next_index(self, position: int) -> Optional[int]:
        """The smallest manipulation index at or above a position."""

    def previous_index(self, position: int) -> Optional[int]:
        """The largest manipulation index at or below a position."""

    @property
    def diagnostics(self) -> dict[str, int]:
        """What was odd in the log, counted by kind."""

    @property
    def dropped(self) -> list[tuple[str, list[str]]]:
        """What the rules `openhands` dropped on the rebuild, in order: the property and the ids."""

    def diff(self, other: View) -> dict[str, Any]:
        """What differs in another view of the same log."""

    def request(self, api: Api = "openai") -> dict[str, Any]:
        """The request in the shape of an API: `openai`, `responses` or `anthropic`. It is always valid."""

    @staticmethod
    def validate(request: Any, api: Api = "openai") -> list[str]:
        """What is wrong with a request by the rules of its API; empty where nothing is."""

    def tokens(self, tokenizer: str = "o200k") -> int:
        """The tokens of the complete request: system prompt, tools and messages."""

    def render(self, mode: Union[str, int, None] = None, *, tokenizer: Optional[str] = None) -> str:
        """The view as stable text for snapshot tests. `mode` is `full`, `kinds`, `redacted`, or the number of
        characters of each text."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Entry: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Entry]: ...
    def __iter__(self) -> Iterator[Entry]: ...

@final
class State:
    """All that a policy may look at: a sequence of the view's entries, with sizes and budgets.

    It can be read only while the policy is asked."""

    @property
    def tokens(self) -> int:
        """The size of the complete request: as the provider reported it, else as counted."""

    @property
    def entry_tokens(self) -> list[int]:
        """The size of each entry, by position."""

    @property
    def budgets(self) -> dict[str, dict[str, Any]]:
        """The budgets in force: `window`, `reserve`, `request`, `trigger`, `retained`, `summary_input` and
        `summary_output`, each with `tokens`, `events` and `origin`."""

    @property
    def trigger(self) -> Optional[int]:
        """The size above which policies act; `None` where no window is known."""

    @property
    def retained(self) -> Optional[int]:
        """What a condensation should leave; `None` where no window is known."""

    @property
    def recall(self) -> bool:
        """Whether policies write the addresses of what they remove, `[event ID]`."""

    @property
    def ids(self) -> list[str]:
        """The ids of the entries, oldest first."""

    @property
    def unhandled_condensation_request(self) -> bool:
        """Whether somebody asked for a condensation and none has followed."""

    @property
    def manipulation_indices(self) -> list[int]:
        """The positions before which the view may be cut."""

    def next_index(self, position: int) -> Optional[int]:
        """The smallest manipulation index at or above a position."""

    def previous_index(self, position: int) -> Optional[int]:
        """The largest manipulation index at or below a position."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Entry: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Entry]: ...
    def __iter__(self) -> Iterator[Entry]: ...

@final
class Policy:
    """A policy by name: `Policy("recent-events", max_events=40)`; `policies()` lists names and settings."""

    def __new__(cls, name: str, /, **settings: Any) -> Policy: ...
    @classmethod
    def pipeline(cls, name: str, members: list[AnyPolicy]) -> Policy:
        """Policies one after the other: the first that wants to act is asked."""

    @classmethod
    def openhands(cls, count_messages: Callable[[list[Any], list[Any]], int], **settings: Any) -> Policy:
        """The port of the OpenHands SDK's summarizing condenser with a counter of the host: `count_messages(messages,
        tools)` gives the tokens of the SDK's own messages, as lists of dictionaries."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def config_digest(self) -> Optional[str]:
        """A digest of the settings, as records carry it."""

def policies() -> list[dict[str, Any]]:
    """All policies by name: kind, description and settings."""

@final
class Plan:
    """What a policy decided: what to forget, what to rewrite, and the summary or whom to ask for it.

    A policy that has nothing to do returns `None` instead."""

    def __new__(
        cls,
        *,
        forget: list[str] = ...,
        rewrites: Optional[dict[str, dict[str, Any]]] = None,
        summary: Optional[str] = None,
        offset: Optional[int] = None,
        ask: Optional[SummaryRequest] = None,
    ) -> Plan: ...

@final
class SummaryRequest:
    """What a summarizer is asked."""

    def __new__(
        cls,
        instructions: str,
        events: list[tuple[str, str]],
        *,
        previous: Optional[str] = None,
        kept: list[tuple[str, str]] = ...,
        guidance: Optional[str] = None,
        max_tokens: Optional[int] = None,
        prompt_version: str = ...,
    ) -> SummaryRequest: ...
    @property
    def system(self) -> str:
        """The text of the system message."""

    @property
    def input(self) -> str:
        """The text of the user message: everything fenced as data."""

    @property
    def instructions(self) -> str:
        """The instructions alone."""

    @property
    def events(self) -> list[tuple[str, str]]:
        """The events to summarize, oldest first: their ids and their text as shown."""

    @property
    def previous(self) -> Optional[str]:
        """The summary before this one."""

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Entries that stay visible after the summary."""

    @property
    def guidance(self) -> Optional[str]:
        """What the user wants the summary to care about."""

    @property
    def max_tokens(self) -> Optional[int]:
        """The most tokens of the summary."""

    @property
    def tool_call(self) -> bool:
        """Whether the answer is to be a call of a tool that the host offers for it."""

    @property
    def prompt_version(self) -> str:
        """The version of the prompt."""

@final
class Summary:
    """A summarizer's answer, where it is more than a text."""

    def __new__(
        cls,
        text: str,
        *,
        cut_by_length: bool = False,
        tool_call: bool = False,
        response_id: Optional[str] = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
    ) -> Summary: ...
    @property
    def text(self) -> str:
        """The text."""

@final
class Condenser:
    """Carries out what a policy decides, with all guarantees checked.

    Numbers of `window` and `reserve` are tokens; the other budgets are tokens as an integer, or a share of the window
    as a float. Without a window, and without a `profile` that names a model, nothing is limited by tokens."""

    def __new__(
        cls,
        policy: AnyPolicy,
        *,
        window: Optional[int] = None,
        reserve: Optional[int] = None,
        request: Union[int, float, None] = None,
        trigger: Union[int, float, None] = None,
        retained: Union[int, float, None] = None,
        summary_input: Union[int, float, None] = None,
        summary_output: Union[int, float, None] = None,
        profile: Optional[str] = None,
        tokenizer: str = "o200k",
        fallbacks: list[AnyPolicy] = ...,
        guards: bool = True,
        redact: bool = True,
        recall: bool = True,
    ) -> Condenser: ...
    @property
    def policy(self) -> str:
        """The policy's name."""

    @property
    def budgets(self) -> dict[str, dict[str, Any]]:
        """The budgets in force, each with `tokens`, `events` and `origin`."""

    def run(
        self,
        view: View,
        summarizer: Optional[Summarizer] = None,
        *,
        too_long: bool = False,
        limit: Optional[int] = None,
    ) -> Outcome:
        """Runs a condensation to its end with a summarizer at hand: `extractive`, `heuristic`, or a function of a
        `SummaryRequest` that gives a text or a `Summary`. The view does not change: push `outcome.record.event(id)`.

        `too_long`, or `limit` in tokens: the provider refused this very request."""

    def begin(
        self, view: View, *, summarizer: Optional[str] = None, too_long: bool = False, limit: Optional[int] = None
    ) -> Union[NeedSummary, Outcome]:
        """Starts a condensation on the view as it stands: an `Outcome`, or a `NeedSummary` to be answered.

        `summarizer` is the name that the record gets."""

    def shadow(
        self, view: View, host: Optional[Condensation] = None, summarizer: Optional[Summarizer] = None
    ) -> ShadowReport:
        """What this condenser would do beside a host that condenses by itself, and what the host did. Nothing is
        recorded."""

@final
class NeedSummary:
    """A condensation that waits for its summary. Dropping it records nothing."""

    @property
    def request(self) -> SummaryRequest:
        """What the summarizer is asked."""

    def answer(self, answer: Union[Answer, SummarizerError, TimeoutError]) -> Union[NeedSummary, Outcome]:
        """Goes on with the answer: a text, a `Summary`, or a `SummarizerError` or `TimeoutError` that says why there is
        none. The next step, or the `Outcome`."""

@final
class Outcome:
    """How a condensation ended."""

    @property
    def kind(self) -> OutcomeKind:
        """`applied`, `nothing_to_do`, `no_gain`, `failed` or `unachievable`."""

    @property
    def record(self) -> Optional[Condensation]:
        """The record, to be appended to the log; `None` where nothing was condensed."""

    @property
    def tokens(self) -> Optional[int]:
        """The size of the complete request before; `None` where there was no reason to look."""

    @property
    def tried(self) -> list[str]:
        """What was tried and failed, oldest first."""

    @property
    def summarizer_calls(self) -> int:
        """Calls of the summarizer, failed ones included."""

    def explain(self) -> str:
        """What came of it, from the facts."""

    def refusal(self, id: str) -> Optional[Event]:
        """The event that says that an attempt came to nothing, to be appended so that it is not made again at once."""

@final
class ShadowReport:
    """Our decision beside the host's."""

    @property
    def ours(self) -> Optional[Outcome]:
        """How our condensation would have ended; `None` where it raised."""

    @property
    def error(self) -> Optional[str]:
        """What was raised."""

    @property
    def before(self) -> int:
        """The size of the complete request as it stands."""

    @property
    def after_ours(self) -> int:
        """Its size after our record; as it stands where we made none."""

    @property
    def after_host(self) -> int:
        """Its size after the host's record; as it stands where it made none."""

    @property
    def both(self) -> list[str]:
        """What both would forget."""

    @property
    def only_ours(self) -> list[str]:
        """What only we would forget."""

    @property
    def only_host(self) -> list[str]:
        """What only the host forgets."""

@final
class TokenCounter:
    """Counts tokens: `o200k`, `cl100k`, `estimate`, `chars/4` or `bytes/4`."""

    def __new__(cls, name: str = "o200k") -> TokenCounter: ...
    @property
    def name(self) -> str:
        """The name, which stands beside every count."""

    @property
    def is_estimate(self) -> bool:
        """Whether the counts are an estimate and not a tokenizer's own."""

    def count(self, text: str) -> int:
        """The tokens of a text."""

@final
class Trace:
    """One recorded session, as events."""

    def __new__(
        cls,
        events: list[Event],
        *,
        name: str = "trace",
        format: str = "events",
        task: Optional[str] = None,
        session: Optional[str] = None,
    ) -> Trace: ...
    @property
    def name(self) -> str:
        """The path as given, plus `#<row>` where a file holds several traces."""

    @property
    def format(self) -> str:
        """The format's name."""

    @property
    def task(self) -> Optional[str]:
        """The task it belongs to, where the source names one."""

    @property
    def session(self) -> Optional[str]:
        """The id that the source gives the session."""

    @property
    def records(self) -> int:
        """Foreign records of the whole file."""

    @property
    def diagnostics(self) -> list[str]:
        """What was odd, each with its place."""

    @property
    def events(self) -> list[Event]:
        """The events of the active branch, in order."""

    def __len__(self) -> int: ...

def read_traces(*paths: StrPath, format: Optional[str] = None) -> list[Trace]:
    """Reads all traces of files, folders and patterns, in any known format or as the one that is named.

    A path that is named must be readable; what is found in a folder and is no trace is left out."""

def find_traces(*paths: StrPath) -> list[tuple[Path, bool]]:
    """The files and trace folders behind paths, and whether each was named: what is only found may be something
    else."""

def write_traces(traces: list[Trace], format: str) -> str:
    """Traces of one file as text in another format: `openhands-v1`, `openai`, `anthropic`, `pi` or `atif`."""

@final
class Log:
    """Sessions of events in one SQLite file, appended and never changed. Without a path, in memory.

    One connection: threads that share it wait for each other."""

    def __new__(cls, path: Optional[StrPath] = None, *, read_only: bool = False) -> Log: ...
    def create_session(self, name: str, *, rules: Rules = "sound", meta: Optional[dict[str, Any]] = None) -> str:
        """Makes a session; its id. `meta` is whatever the host keeps with it."""

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions: `id`, `name`, `rules` and `meta` of each."""

    def new_event_id(self) -> str:
        """A fresh event id, larger than those before it."""

    def append(self, session: str, events: list[Event]) -> None:
        """Appends events after the session's head: all of them, durably, or none."""

    def append_condensation(self, session: str, record: Condensation) -> str:
        """Appends a condensation; the id of its event. `StaleError` where the log has moved on in a way that
        matters."""

    def events(self, session: str) -> list[Event]:
        """All events of a session, in log order."""

    def branch(self, session: str, head: Optional[str] = None) -> list[Event]:
        """The events from the root to `head`, or to the session's head."""

    def event(self, session: str, id: str) -> Optional[Event]:
        """The event with this id; `None` where the session has none."""

    def view(self, session: str, head: Optional[str] = None) -> View:
        """The view of the active branch, under the rules stored with the session."""

    def set_head(self, session: str, head: Optional[str]) -> None:
        """Moves the session's head to an event of it, or to before its first event."""

    def undo(self, session: str, condensation: Optional[str] = None) -> str:
        """Takes a condensation back, the newest in force without an id; the id of the condensation."""

    def pin(self, session: str, events: list[str]) -> str:
        """Pins events, so that no policy may forget or rewrite them."""

    def unpin(self, session: str, events: list[str]) -> str:
        """Unpins events."""

    def text(self, session: str, id: str) -> Optional[str]:
        """The text of a stored event, forgotten ones included; `None` where the session has no such event."""

    def search(self, session: str, words: str, *, limit: int = 10) -> list[dict[str, Any]]:
        """Events that hold all words, best first: `id`, `kind` and `snippet` of each."""

    def verify(self, session: str) -> int:
        """The number of problems that a check of the whole session finds: 0 where every event is as it was appended."""

    def close(self) -> None:
        """Closes the file. Every later call fails."""

    def __enter__(self) -> Log: ...
    def __exit__(
        self,
        exception_type: Optional[type[BaseException]] = None,
        exception: Optional[BaseException] = None,
        traceback: Optional[TracebackType] = None,
        /,
    ) -> None: ...

def compare(
    traces: list[Trace],
    policies: list[AnyPolicy],
    *,
    windows: list[int],
    reserve: int,
    tokenizer: str,
    profile: str,
    summarizer: Summarizer,
    rules: Rules,
    recall: bool,
    seeds: int,
    jobs: int,
) -> list[Row]:
    """Replays traces under policies: a row for each trace, window, policy and seed, in this order."""

def means(rows: list[Row], profile: str) -> list[dict[str, Any]]:
    """Means over the traces of each policy, from rows; costs on the bases `uncached`, `discount` and `tiered`."""
