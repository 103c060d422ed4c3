"""SQL over the messages of a frame, which Spark reads and runs natively.

Problem: a statement of the user's must keep Drivetrain's own columns, such as the timestamp, and must treat
each message alone: an aggregate that slips through would count the messages of a batch.

Design: the frame is a view under a name of its own while Spark analyses the statement. Hidden columns are
selected under other names, since `*` has them, too. The analysed plan may only have operators that take one
row at a time; it is checked once for each statement.

Called by `operators`.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import SelectSql
from drivetrain.errors import OperatorTypeError
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.surroundings import Surroundings

_KEPT: Final = "__kept"
_ROW_BY_ROW: Final = frozenset({"Project", "Filter", "Generate", "SubqueryAlias"})
"""The operators of Spark's plans that take one row at a time."""
_checked: Final[set[SelectSql]] = set()
"""The statements whose plan has been checked in this process."""


def select_sql(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The messages that a statement computes."""
    operation, frame, where = node.operation, inputs[0].resolved(), str(node)
    assert isinstance(operation, SelectSql)
    hidden = [c for c in frame.df.columns if c.startswith("__")]
    made = _statement(operation, frame.df, hidden, where)
    names = [c for c in made.columns if not c.startswith("__")]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice or not names:
        raise OperatorTypeError(
            f"two columns would be called {twice[0]!r}" if twice else "no column is left",
            where=where,
            expected="columns with different names: give one another name with AS",
            got=operation.described,
        )
    quoted = [F.col("`" + name.replace("`", "``") + "`") for name in names]
    return Frame(made.select(*quoted, *[F.col(_KEPT + c).alias(c) for c in hidden]))


def _statement(operation: SelectSql, df: DataFrame, hidden: list[str], where: str) -> DataFrame:
    spark, view = df.sparkSession, f"__this_{uuid.uuid4().hex}"
    kept = [f"`{c}` AS `{_KEPT}{c}`" for c in hidden]
    columns = ", ".join([operation.columns, *kept])
    df.createOrReplaceTempView(view)
    try:
        parts = ("SELECT", columns, "FROM", view, "AS", operation.alias, operation.clauses)
        made = spark.sql(" ".join(parts))
    finally:
        spark.catalog.dropTempView(view)
    if operation not in _checked:
        _require_row_by_row(made, where)
        _checked.add(operation)
    return made


def _require_row_by_row(made: DataFrame, where: str) -> None:
    """Raise `OperatorTypeError` unless a statement takes one message at a time."""
    plan: Any = made._jdf.queryExecution().analyzed()
    while plan.nodeName() != "View":
        name = plan.nodeName()
        if name not in _ROW_BY_ROW or not plan.subqueries().isEmpty():
            raise OperatorTypeError(
                "SQL over a stream takes one message at a time",
                where=where,
                expected="expressions, WHERE and LATERAL VIEW",
                got=f"a statement that Spark runs with {name}",
                remedy="use group_by, join, deduplicate or union of the stream",
            )
        plan = plan.children().apply(0)
