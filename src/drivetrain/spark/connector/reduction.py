"""What a reader of messages may deliver in place of them: partial results of the windows that follow.

Problem: handing rows from Python to Java, and grouping them there, costs several times what parsing them in
columns does. A window needs no rows, only sums.

Design: a `Reduction` describes a source that is read by nothing but tumbling windows: their keys, size, and
values that are counts, sums and extremes of columns. A reader that has its messages in columns groups them,
a batch at a time, and delivers one row for each group: the keys, `END`, how many messages it stands for
(`ROWS`), a partial value for each value, and `WM`, from which Spark computes its watermark. Spark's
aggregation merges partial values instead of adding messages. A message by itself is a partial result, too,
so a reader groups only where it pays. Only types are taken for which the merged result is the same whatever
is grouped: no floating numbers.

Invariants:

1. Grouped in any way, the rows merge to what the messages give: counts, sums and extremes are the same, and
   so is the largest `WM`.
2. The sum of `ROWS` is the number of messages.
3. Sums of a group do not overflow; where they could, messages are delivered one by one.

Called by `compile.partial_results` and `prepare.reduced_sources`, which describe a reduction, and by sources
that reduce.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from drivetrain.runtime.channel.columns import WM

ROWS: Final = "__rows"
"""How many messages a row stands for: 0 in the row that marks the end of the input."""
END: Final = "__end"
"""The end of a window, on the scale of Spark's watermark: with the keys, it identifies a group."""

Function: TypeAlias = Literal["count", "sum", "min", "max"]
_WHOLE: Final[tuple[type[DataType], ...]] = (ByteType, ShortType, IntegerType, LongType)
_ORDERED: Final[tuple[type[DataType], ...]] = (*_WHOLE, DateType, TimestampType)
_KEYS: Final[tuple[type[DataType], ...]] = (*_ORDERED, BooleanType, StringType)


@dataclass(frozen=True)
class PartialValue:
    """A value of a group: a function of a column, or the number of messages (`count` of None)."""

    function: Function
    column: str | None = None


@dataclass(frozen=True)
class Reduction:
    """Tumbling windows of `size_ms` over messages with a timestamp in the column `timestamp`.

    The first window begins `first_ms` after the beginning of the watermark's scale. `disorder_ms` is what
    Spark subtracts from the largest `WM`; `where` is the processor that assigns the timestamps. Without
    `moves_clock` messages do not move the watermark: their `WM` is 1970.
    """

    keys: tuple[str, ...]
    values: tuple[PartialValue, ...]
    timestamp: str
    size_ms: int
    first_ms: int
    disorder_ms: int
    where: str
    moves_clock: bool = True

    def fits(self, columns: StructType) -> bool:
        """Whether messages with these columns can be reduced without a change of the results.

        >>> from pyspark.sql.types import DoubleType, LongType
        >>> reduction = Reduction((), (PartialValue("sum", "v"),), "t", 1000, 0, 0, "")
        >>> times = StructType().add("t", TimestampType())
        >>> reduction.fits(times.add("v", LongType())), reduction.fits(times.add("v", DoubleType()))
        (True, False)
        """
        kinds = {field.name: field.dataType for field in columns.fields}
        if len({name.lower() for name in kinds}) < len(kinds):
            return False
        return (
            isinstance(kinds.get(self.timestamp), TimestampType)
            and all(_is_plain(kinds.get(key), _KEYS) for key in self.keys)
            and all(_is_taken(value, kinds) for value in self.values)
        )

    def needed(self, of: StructType) -> StructType:
        """The columns of messages that are used, of their columns `of`."""
        names = {*self.keys, self.timestamp, *(value.column for value in self.values)}
        return StructType([field for field in of.fields if field.name in names])

    def columns(self, of: StructType) -> StructType:
        """The columns of the rows, for messages with the columns `of`."""
        made = StructType([StructField(key, of[key].dataType) for key in self.keys])
        made.add(END, TimestampType()).add(ROWS, LongType())
        for number, value in enumerate(self.values):
            made.add(name_of(number), _kind(value, of))
        return made.add(WM, TimestampType())

    def to_json(self) -> str:
        """The reduction as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Reduction:
        """The reduction from the text of `to_json`.

        >>> reduction = Reduction(("k",), (PartialValue("count"),), "t", 1000, 0, 5000, "read")
        >>> Reduction.from_json(reduction.to_json()) == reduction
        True
        """
        fields: dict[str, Any] = json.loads(text)
        values = tuple(PartialValue(**value) for value in fields.pop("values"))
        return cls(tuple(fields.pop("keys")), values, **fields)


def name_of(number: int) -> str:
    """The column of the value with that number."""
    return f"__value{number}"


def _is_plain(kind: DataType | None, allowed: Container[type[DataType]]) -> bool:
    """Whether a type is one of these itself; strings with a collation of their own compare differently."""
    return (
        kind is not None and type(kind) in allowed and (type(kind) is not StringType or kind == StringType())
    )


def _is_taken(value: PartialValue, kinds: dict[str, DataType]) -> bool:
    if value.column is None:
        return value.function == "count"
    if value.function == "count":
        return value.column in kinds
    return _is_plain(kinds.get(value.column), _WHOLE if value.function == "sum" else _ORDERED)


def _kind(value: PartialValue, of: StructType) -> DataType:
    if value.column is None or value.function in ("count", "sum"):
        return LongType()
    return of[value.column].dataType
