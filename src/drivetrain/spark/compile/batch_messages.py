"""The messages of a batch between two functions, in the form that the next one takes.

Problem: the form of a function's input follows from its parameter and from the columns of the stream, never
from whether the function before it runs in the same Arrow stage. Functions return instances of a class,
tuples for columns that were declared as text, or bare values; one function filters by one class, the next
maps by another.

Design: the messages are kept in their original form, from columns or from a function; other forms are
created when a function needs one. Dropping messages drops them from all forms.

Invariants:

1. All forms have the same messages, in the same order; `rows` has the batch's row of each.
2. A form that no function needs is never created.

Called by `python_stage`.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import compress
from typing import Any, Final

import pyarrow as pa

from drivetrain.api.types import MessageType
from drivetrain.spark.compile.arrow_messages import messages_of, with_form

_AS_RETURNED: Final = object()
"""The form of results that name their columns by position only."""


class BatchMessages:
    """The messages of one batch; `rows` is None while message i comes from row i, or rows are not needed."""

    def __init__(self, batch: pa.RecordBatch, columns: Sequence[str]) -> None:
        self.rows: list[int] | None = None
        self.count = batch.num_rows
        self._batch: Final = batch
        self._columns: Final = columns
        self._forms: dict[object, list[Any]] = {}
        self._type: MessageType | None = None
        self._names: Sequence[str] = columns
        self._operator = ""

    def as_wanted(self, wants: builtins.type | None) -> list[Any]:
        """The messages for a function that takes a class, `tuple`, or None for a row or a bare value."""
        if wants not in self._forms:
            self._forms[wants] = self._made_of_columns(wants) if self._type is None else self._made(wants)
        return self._forms[wants]

    @property
    def returned(self) -> list[Any]:
        """The results of the last function."""
        assert self._type is not None
        return self._forms[_natural_form(self._type)]

    def replace(
        self,
        results: list[Any],
        type: MessageType,
        names: Sequence[str],
        operator: str,
        rows: list[int] | None,
    ) -> None:
        """Replace the messages with a function's results."""
        self._forms = {_natural_form(type): results}
        self._type, self._names, self._operator = type, names, operator
        self.rows, self.count = rows, len(results)

    def keep(self, which: list[Any], *, rows: bool) -> None:
        """Keep only the messages for which `which` holds; with `rows` their rows are needed later."""
        self._forms = {form: list(compress(messages, which)) for form, messages in self._forms.items()}
        if rows:
            self.rows = list(compress(self.all_rows(), which))
        self.count = sum(map(bool, which))

    def all_rows(self) -> list[int]:
        """The row of each message."""
        return list(range(self.count)) if self.rows is None else self.rows

    def _made_of_columns(self, wants: builtins.type | None) -> list[Any]:
        batch = self._batch if self.rows is None else self._batch.take(pa.array(self.rows, pa.int64()))
        return messages_of(batch, self._columns, wants)

    def _made(self, wants: builtins.type | None) -> list[Any]:
        assert self._type is not None
        return with_form(self.returned, self._type, self._names, wants, self._operator)


def _natural_form(type: MessageType) -> object:
    """The form in which a function returns messages of a type."""
    return None if type.scalar else type.python or _AS_RETURNED
