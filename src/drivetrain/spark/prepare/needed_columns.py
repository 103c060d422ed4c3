"""Which columns of a channel an aggregation uses: its reader hands over no others.

Problem: a column that is handed from Python to Java costs as much whether it is used or not, and a Python
source gets no word of what Spark's optimizer has found to be unused.

Design: an aggregation that is the whole trunk of a fragment passes on its keys, windows and results only.
Spark resolves its expressions and names the columns that they mention.

Called by `fragment`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from drivetrain.api.expressions.columns import Column
from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Aggregate
from drivetrain.api.states.monoids import Aggregation
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.lowering import spark_column
from drivetrain.spark.compile.windowed import BEFORE, aggregate_columns


def needed_columns(node: Node, df: DataFrame, columns: StructType) -> StructType | None:
    """Those of a channel's `columns` that `node`, an aggregation of its messages `df`, uses; None: all."""
    operation, where = node.operation, str(node)
    if not isinstance(operation, Aggregate):
        return None
    keys = [spark_column(key, where) for _, key in operation.keys if isinstance(key, Column)]
    native = [one for _, one in operation.aggregations if isinstance(one, Aggregation)]
    if len(keys) < len(operation.keys) or len(native) < len(operation.aggregations):
        return None  # a Python function gets whole messages
    grouped = df.groupBy(*keys).agg(*aggregate_columns(operation, where))
    mentioned = grouped._jdf.queryExecution().analyzed().references().toSeq()
    used = {mentioned.apply(index).name() for index in range(mentioned.size())} | {TS, BEFORE}
    needed = [field for field in columns.fields if field.name in used]
    return StructType(needed) if len(needed) < len(columns.fields) else None
