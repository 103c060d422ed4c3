"""Marks in a table that say which batches it has: pure.

The problem: a batch may run again after a crash, in the same process or another, while the process that ran
it first may still be alive and commit late. And a state that was deleted numbers its batches from the
beginning.

The design: a commit of a sink sets two numbers of the table, together with its rows:

    drivetrain/<application>/<sink>/owner    a number of the state that publishes; 0: nobody
    drivetrain/<application>/<sink>/batch    the last published batch

They are application transactions in Delta Lake, and properties in Iceberg. A commit is refused if one since
the version that it looked at has set the same ones. So of two processes that commit batch 7, one is refused,
looks again, and finds it published.

Invariants:

1. Batches of one state are published in growing order, each once.
2. A sink never silently adds to rows of another state of its application.

Called by the sinks of tables. Source: "Transaction Identifiers" in Delta's protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

from drivetrain.core.checkpoint.publication import NONE
from drivetrain.errors import OutputError

NOBODY = 0
_PREFIX = "drivetrain/"


def is_mark(name: str) -> bool:
    """Whether a property of a table is a mark of some sink."""
    return name.startswith(_PREFIX)


@dataclass(frozen=True)
class Marks:
    """The marks of one sink; `token` (hexadecimal) is its state's."""

    application: str
    sink: str
    token: str

    @property
    def owner(self) -> str:
        """The name of the owner's mark."""
        return f"{_PREFIX}{self.application}/{self.sink}/owner"

    @property
    def batch(self) -> str:
        """The name of the batch's mark."""
        return f"{_PREFIX}{self.application}/{self.sink}/batch"

    @property
    def number(self) -> int:
        """The token as a positive number of 60 bits."""
        return int(self.token[:15], 16) or 1

    def after(self, batch: int) -> dict[str, int]:
        """The marks of a commit with which the batches up to this one are published."""
        return {self.owner: self.number, self.batch: batch}

    def forgotten(self) -> dict[str, int]:
        """The marks of a commit after which nothing is published, and any state may begin."""
        return {self.owner: NOBODY, self.batch: NONE}

    def published(
        self, owner: int | None, batch: int | None, where: str, *, may_mix: bool, had: bool = False
    ) -> int:
        """The last published batch, by the marks in the table; `NONE` if there is none.

        `had` is whether this process has seen its state own the table. Raises `OutputError` if it no longer
        does, and for rows of another state, unless they `may_mix`.
        """
        if owner == self.number and batch is not None:
            return batch
        if had:
            raise OutputError(
                "another run has taken over the table",
                where=where,
                expected="the mark of this state directory",
                got="none" if owner in (None, NOBODY) else "the mark of another one",
                remedy="see which runs of the application there are: only one may write to the table",
            )
        if owner in (None, NOBODY) or batch in (None, NONE) or may_mix:
            return NONE
        raise OutputError(
            "the table has rows of this application from another state directory",
            where=where,
            expected="rows of this state directory, or none",
            got=f"the mark of another one, which published batches up to {batch}",
            remedy="use the state directory of the run that wrote them, or another table; or choose "
            'on_fresh="keep" or "empty" in the sink, and use --fresh once',
        )
