"""The n messages of each group with the largest values, natively.

The problem: a query holds one stateful operator, and ranking is not one of Spark's. The design: one
aggregate, `max_by` with a number, keeps a heap of n messages for each group. Its order is total as far as
Spark can order the columns, so the result depends neither on the order of arrival nor on batches. After the
trunk, the array of a group becomes one message for each of its entries.

Called by `operators`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Top
from drivetrain.api.operators.grouped import ADDED_BY_TOP
from drivetrain.errors import OperatorTypeError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.lowering import spark_column
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings
from drivetrain.spark.compile.windowed import reduced

_TOP = "__top"
_PLACE = "__place"


def top(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """The plan of the largest messages of each group; `expand` makes messages of the arrays."""
    operation, frame, where = node.operation, inputs[0].resolved(), str(node)
    assert isinstance(operation, Top)
    keys = [name for name, _ in operation.keys]
    values = [column for column in frame.columns if column not in keys]
    added = ADDED_BY_TOP if operation.window.kind != "global" else ADDED_BY_TOP[:1]
    if clash := [name for name in values if name in added]:
        raise OperatorTypeError(
            f"the messages already have a column {clash[0]!r}, which top adds",
            where=where,
            expected=f"no column called {' or '.join(added)}",
            got=", ".join(frame.columns),
            remedy="rename(...) or drop(...) it first",
        )
    by = spark_column(operation.by, where)
    kinds = {field.name: field.dataType for field in frame.df.schema.fields}
    stamp = [-F.unix_micros(TS)] if frame.timed else []
    order = F.struct(by, *stamp, *[_quoted(v) for v in values if _has_order(kinds[v])])
    message = F.struct(*map(_quoted, values)) if values else F.struct(F.lit(True).alias(_PLACE))
    largest = F.max_by(message, F.when(by.isNotNull(), order), operation.n).alias(_TOP)
    made = reduced(operation, frame, [largest], [_TOP], where, around)

    def expand(df: DataFrame) -> Frame:
        leading = [c for c in df.columns if c not in (_TOP, TS)]
        each = df.select(*map(_quoted, leading), TS, F.posexplode(_TOP).alias(_PLACE, _TOP))
        rank = (F.col(_PLACE) + 1).alias("rank")
        fields = [F.col(_TOP).getField(value).alias(value) for value in values]
        return Frame(each.select(*map(_quoted, leading), rank, *fields, TS))

    return StatefulPlan(made.df, made.mode, expand)


def _quoted(name: str) -> object:
    return F.col("`" + name.replace("`", "``") + "`")


def _has_order(kind: DataType) -> bool:
    """Whether Spark can compare values of this type."""
    if isinstance(kind, ArrayType):
        return _has_order(kind.elementType)
    if isinstance(kind, StructType):
        return all(_has_order(field.dataType) for field in kind.fields)
    return not isinstance(kind, MapType | VariantType)
