"""How far a transactional sink has published, although it may die at any point.

The problem: a batch is published by a transaction at an external target, and the local record of it cannot be
written in the same instant. After a crash between the two, the batch is processed again, and Drivetrain must
know whether it was published.

The design: the transaction leaves a **marker** at the target: who published (a token that was drawn when
the sink's state began) and the last batch. The local note holds the token, the last batch that is known to be
published, and the batch whose transaction may have been committed. If there is a marker, it decides. Targets
may forget markers after some time (by default, Kafka after a week without a commit); then the note decides if
it is unambiguous. Otherwise Drivetrain does not guess, and the user must decide.

    note                     marker            result
    any                      another's token   the results there belong to another state: refused
    published p              none              the batches up to p
    published p, begun n     none              not known whether n is: refused
    published p, begun n     batch m           the batches up to max(p, m)

Invariants:

1. Batches are published in growing order, each once.
2. `published` never falls, and `begun` is above it.
3. A batch begins only when the one before it is settled.
4. A marker is left at the target before the first batch begins, so a missing marker was forgotten.

Called by the Kafka sink. Source: the recovery of two-phase commits in Apache Flink's sinks, and Apache
Storm's rule that a commit is repeated without effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from drivetrain.errors import InternalError, OutputError

NONE = -1
"""Stands for "no batch yet"."""


@dataclass(frozen=True)
class Marker:
    """The marker at the target: who published there, and the last published batch."""

    token: str
    batch: int


@dataclass(frozen=True)
class Publication:
    """The local note; every event returns a new one, and an illegal event raises and changes nothing."""

    token: str
    published: int = NONE
    begun: int | None = None

    def began(self, batch: int) -> Publication:
        """The transaction of `batch` may be committed from now on; a batch that has begun may begin again."""
        if batch <= self.published:
            raise InternalError(f"batch {batch} begins, and {self.published} is published")
        if self.begun not in (None, batch):
            raise InternalError(f"batch {batch} begins before {self.begun} is settled")
        return replace(self, begun=batch)

    def committed(self, batch: int) -> Publication:
        """The transaction of `batch` is committed."""
        if self.begun != batch:
            raise InternalError(f"batch {batch} is committed, and {self.begun} had begun")
        return Publication(self.token, batch)

    def newest(self, marker: Marker | None) -> int:
        """The newest batch that is published, by what the note and the marker say now.

        >>> note = Publication("ours", 2)
        >>> note.newest(Marker("ours", 3)), note.newest(Marker("another's", 9)), note.newest(None)
        (3, 2, 2)
        """
        return (
            self.published
            if marker is None or marker.token != self.token
            else max(self.published, marker.batch)
        )

    def resolved(self, marker: Marker | None, where: str, note: str) -> Publication:
        """The note after a start, when no transaction of ours is open any more.

        `where` names the target and `note` the file of this note, for the errors: `OutputError` for
        another state's marker, and when it cannot be known what was published.
        """
        if marker is None:
            if self.begun is None:
                return self
            raise OutputError(
                f"it is unknown whether batch {self.begun} was published",
                where=where,
                expected="the number of the last batch, which is kept beside the messages",
                got="none: it has expired or was deleted since",
                remedy=f'see whether its messages are there, then set "published" in {note} to {self.begun} '
                f'if they are, or leave it if they are not, and in both cases set "begun" to null',
            )
        if marker.token != self.token:
            raise foreign(where)
        return Publication(self.token, self.newest(marker))

    def check(self) -> None:
        """Raise `InternalError` if an invariant of this module does not hold."""
        if not self.token or self.published < NONE:
            raise InternalError(f"not a publication: {self}")
        if self.begun is not None and self.begun <= self.published:
            raise InternalError(f"a batch has begun that is published: {self}")


def foreign(where: str) -> OutputError:
    """The error for results at the target that another state published."""
    return OutputError(
        "the topic has results of this application from another state directory",
        where=where,
        expected="results of this state directory, or none",
        got="the mark of another one",
        remedy="use the state directory of the run that wrote them, or another topic; or let this run write "
        'its results after them: on_fresh="append" in the sink, and --fresh once',
    )
