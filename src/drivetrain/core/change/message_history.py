"""Which messages from before a change its new fragments can get, and why others cannot.

Problem: a new fragment begins with the next message of a running one. The messages before that are still in
the sources, but the results of most processors are not kept.

Design: with `--history FROM`, the messages from FROM on are read from the sources again, and pass through the
processors between the sources and the new fragment (its *way*) a second time. That gives the same messages
only if the way keeps no state, and if one query reads the sources and runs the whole way. So the running
fragment that writes the new channel must keep no state, read sources itself and nothing else, and keep
the query that it has.

| a new processor | gets |
|---|---|
| in a new fragment that reads from such a running fragment | the messages from FROM on |
| in a new fragment that reads from a new one | what that one emits |
| on the way to a new fragment, in the running one | the messages from FROM on, for the new fragment alone |
| elsewhere in a running fragment | refused: it would get messages from the next batch on |

Invariants:

1. If nothing is refused, every new processor that reads a running fragment gets the messages from FROM on.

Called by `difference`, by everything that compares versions, by `spark.run.history_readers`, and by
application masters.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from drivetrain.api.moments import moment_ms, moment_text
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.trunks import restarting
from drivetrain.core.figures import show_counted
from drivetrain.errors import UserError

OPTION = "--history"


class HistoryState(msgspec.Struct, frozen=True):
    """How far the messages from before a change, from `from_ms` on, have been read for its new `fragments`.

    `rows` messages were written for these fragments so far. `at_ms` is the largest timestamp among those that
    were read, `until_ms` that of the running fragment. `is_over`: all were read, or it was given up.
    """

    from_ms: int
    fragments: tuple[str, ...]
    rows: int = 0
    at_ms: int | None = None
    until_ms: int | None = None
    is_over: bool = False

    def with_progress(self, parts: Sequence[tuple[int, int | None, int | None]]) -> HistoryState:
        """The progress of all running fragments that read, each with its `rows`, `at_ms` and `until_ms`.

        >>> state = HistoryState(0, ("hourly",)).with_progress([(3, 60_000, 90_000), (4, 50_000, None)])
        >>> state.rows, state.at_ms, state.until_ms
        (7, 50000, 90000)
        """
        rows = sum(part[0] for part in parts)
        at = [at_ms for _, at_ms, _ in parts if at_ms is not None]
        until = [until_ms for _, _, until_ms in parts if until_ms is not None]
        progress = {"at_ms": min(at, default=None), "until_ms": max(until, default=None)}
        return msgspec.structs.replace(self, rows=rows, **progress)

    @property
    def in_words(self) -> str:
        """The progress, for users."""
        rows = show_counted(self.rows, "message")
        read = f"the messages from {moment_text(self.from_ms)} on are read again: {rows} so far"
        if self.at_ms is None:
            return read
        until = "" if self.until_ms is None else f" of {moment_text(self.until_ms)}"
        return f"{read}, up to {moment_text(self.at_ms)}{until}"

    def of_change(self, number: int) -> str:
        """The progress of the change to version `number`, which waits for this."""
        return f"version {number} comes into force when {self.in_words}"


def history_given(history: str | int | dt.datetime | None) -> int | None:
    """From when on a change reads former messages, as users write it: a moment, or None; raises UserError.

    >>> history_given("1970-01-01T00:01"), history_given(None)
    (60000, None)
    """
    return None if history is None else moment_ms(history, OPTION)


def histories(old: GraphVersion, new: GraphVersion) -> dict[str, str]:
    """The channels from running fragments to new ones, each with the processor whose messages it carries."""
    found: dict[str, str] = {}
    for fragment in new.fragments:
        if fragment in old.fragments:
            continue
        for channel, producer in new.channel_producers(fragment).items():
            if producer in old.fragments:
                read = new.producers(fragment)[producer]
                found[channel] = max((id for id in read if channel.startswith(f"{id}--")), key=len)
    return found


def written_again(old: GraphVersion, new: GraphVersion) -> dict[str, tuple[str, ...]]:
    """The channels to new fragments that each running fragment writes, by running fragment."""
    found: dict[str, tuple[str, ...]] = {}
    for channel, processor in histories(old, new).items():
        fragment = str(new.fragment_of(processor))
        found[fragment] = (*found.get(fragment, ()), channel)
    return found


def read_again(old: GraphVersion, new: GraphVersion) -> dict[str, tuple[str, ...]]:
    """The sources that are read again for each new fragment, also for those that read another new one."""
    found: dict[str, tuple[str, ...]] = {}
    for fragment in new.fragments:
        if fragment in old.fragments:
            continue
        sources: list[str] = []
        for producer in new.channel_producers(fragment).values():
            sources += new.sources(producer) if producer in old.fragments else found.get(producer, ())
        if sources:
            found[fragment] = tuple(dict.fromkeys(sources))
    return found


def refused_histories(old: GraphVersion, new: GraphVersion) -> dict[str, str]:
    """The new processors that cannot get the messages that were before, each with the reason."""
    found: dict[str, str] = {}
    channels = histories(old, new)
    restarts, on_way = restarting(old, new), set[str]()
    for channel, processor in channels.items():
        fragment = str(new.fragment_of(processor))
        on_way |= way_to(new, processor)
        why = _obstacle(new, fragment, processor, restarts)
        if why is not None:
            found |= dict.fromkeys(_readers(old, new, channel), f"{OPTION}: {why}")
    for id in new.processors:
        home = new.fragment_of(id)
        if id not in old.processors and home in old.fragments and id not in on_way:
            found[id] = (
                f"{OPTION}: it would run in fragment {home}, which runs already, and get messages from the "
                "next batch on; .cut() before it gives it a fragment of its own"
            )
    return found


def require_histories(old: GraphVersion, new: GraphVersion, options: ChangeOptions) -> None:
    """Raise UserError when a change that asks for former messages has no fragment that could get any."""
    if options.history_ms is None:
        return
    if options.at is not None:
        raise UserError(
            "a change with former messages takes effect when they are read, not at an event time",
            where=OPTION,
            got="--at",
            remedy=f"leave --at out, or {OPTION}",
        )
    if read_again(old, new) or refused_histories(old, new):
        return
    raise UserError(
        "nothing in this change can get the messages that were before",
        where=OPTION,
        expected="a new fragment that reads from one that runs",
        remedy=f"leave {OPTION} out: new sources are read from where they begin, and what replaces a "
        "processor gets messages from the next batch on",
    )


def way_to(version: GraphVersion, processor: str) -> set[str]:
    """A processor, with those in its fragment that its messages come through."""
    home, found, wanted = version.fragment_of(processor), set[str](), [processor]
    while wanted:
        id = wanted.pop()
        if id not in found and version.fragment_of(id) == home:
            found.add(id)
            wanted += version.processors[id].inputs
    return found


def _obstacle(new: GraphVersion, fragment: str, processor: str, restarts: tuple[str, ...]) -> str | None:
    """Why former messages of a processor cannot be computed again; None if they can."""
    record = new.fragments[fragment]
    if record.stateful is not None:
        return (
            f"{processor} follows the state of {record.stateful}, whose former results are not kept; "
            "attach to a processor before it, or to a source of its own"
        )
    if new.channels(fragment):
        return (
            f"{processor} is in fragment {fragment}, which reads a channel, and channels keep no messages "
            "that were read; attach to a processor in the fragment of the source"
        )
    if fragment in restarts:
        return f"the query of {fragment} restarts with this change; change what restarts it first"
    return None


def _readers(old: GraphVersion, new: GraphVersion, channel: str) -> list[str]:
    """The processors of the new fragment that reads a channel."""
    for id, record in new.fragments.items():
        if id not in old.fragments and channel in record.inputs:
            return [*record.trunk, *record.branches][:1]
    return []
