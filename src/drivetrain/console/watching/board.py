"""The newest states that streams of events carry: a pure core.

Problem: hundreds of pages listen, some of them slowly, and some return after they lost their connection. A
queue for each of them would grow without bound.

Design: of each topic (an application, the cluster) the board keeps only the current state, in a note with the
number of its change. A reader remembers the number up to which it has read; next it gets the notes with
higher ones. A slow reader misses intermediate states but never the last one.

Invariants:

1. Numbers grow, and no two notes have the same one.
2. Notes are in the order of their numbers.
3. There is at most one note for each topic, and at most `MOST_GONE` for applications that are gone.

Called by `console.watching.cluster_watch`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from drivetrain.errors import InternalError

MOST_GONE: Final = 200


@dataclass(frozen=True, slots=True)
class Topic:
    """What a note is about: the type of its event, and the application (empty: none)."""

    event: str
    app_id: str = ""


@dataclass(frozen=True, slots=True)
class TopicState:
    """The current state of a topic as JSON, and the number of the change that led to it.

    `for_guests` is the version for callers who may not read errors.
    """

    topic: Topic
    number: int
    data: bytes
    for_guests: bytes


class Board:
    """The notes by topic.

    >>> board = Board()
    >>> board.put(Topic("cluster"), b"1", b"{}")
    True
    >>> board.put(Topic("cluster"), b"1", b"{}")
    False
    >>> [note.number for note in board.after(0, lambda topic: True, 10)]
    [1]
    """

    def __init__(self) -> None:
        self.newest = 0
        self._notes: Final[OrderedDict[Topic, TopicState]] = OrderedDict()
        self._meaning: Final[dict[Topic, bytes]] = {}

    def put(self, topic: Topic, meaning: bytes, data: bytes, for_guests: bytes | None = None) -> bool:
        """Record a topic, unless its `meaning` is the same as before; returns whether it was noted.

        `meaning` is what of the state counts as a change: all but the time of the look. `for_guests` None
        means the same data.
        """
        if self._meaning.get(topic) == meaning:
            return False
        self._meaning[topic] = meaning
        self.newest += 1
        self._notes[topic] = TopicState(topic, self.newest, data, data if for_guests is None else for_guests)
        self._notes.move_to_end(topic)
        return True

    def drop(self, topic: Topic) -> None:
        """Forget a topic."""
        self._notes.pop(topic, None)
        self._meaning.pop(topic, None)

    def gone(self, app_id: str, event: str, data: bytes) -> bool:
        """An application is gone: forget what was about it, and note that, unless it is noted already."""
        gone = Topic(event, app_id)
        about = [topic for topic in self._notes if topic.app_id == app_id and topic != gone]
        if not about and gone in self._notes:
            return False
        for topic in (*about, gone):
            self.drop(topic)
        self.put(gone, data, data)
        topics = [topic for topic in self._notes if topic.event == event]
        for topic in topics[:-MOST_GONE]:
            self.drop(topic)
        return True

    def topics(self, event: str) -> list[str]:
        """The applications that there are notes of this event for."""
        return [topic.app_id for topic in self._notes if topic.event == event]

    def data(self, topic: Topic) -> bytes | None:
        """The current state of a topic."""
        note = self._notes.get(topic)
        return None if note is None else note.data

    def after(self, number: int, wanted: Callable[[Topic], bool], most: int) -> list[TopicState]:
        """The notes of topics that are wanted and changed after `number`: `most` of them, in order."""
        found: list[TopicState] = []
        for note in reversed(self._notes.values()):
            if note.number <= number:
                break
            if wanted(note.topic):
                found.append(note)
        return found[-most:][::-1]

    def check(self) -> None:
        """Raise InternalError if an invariant does not hold."""
        numbers = [note.number for note in self._notes.values()]
        if any(later <= earlier for earlier, later in pairwise([*numbers, self.newest + 1])):
            raise InternalError("board invariants 1 and 2: numbers do not grow")
        if set(self._notes) != set(self._meaning):
            raise InternalError("board invariant 3: a topic has a meaning and no note, or the reverse")
