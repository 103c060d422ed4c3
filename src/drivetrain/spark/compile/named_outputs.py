"""Named outputs of Tasks: results of different types in one DataFrame, divided again after the Task.

The problem: a Task runs once for each message, but some of its results go to other processors than the main
ones, with other columns. The design: the Task's DataFrame has the columns of its main output, and one more,
`__output`: a struct with a field for each named output, itself a struct of that output's columns. In a row
with a main result `__output` is null; in a row with a result for a named output that field alone is set, and
the main columns are null. `divided` removes such rows where the frame is used, `named_output` reads them.

Invariants:

1. A result goes to exactly one output.
2. Only the processors `Output` see `__output`.

Called by `tasks`, `keyed`, `persistent`, `operators`, `prepare.fragment` and `batch.branch_frames`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Output, Process
from drivetrain.api.task import NamedOutput
from drivetrain.api.types import MessageType
from drivetrain.errors import OperatorError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.arrow_messages import columns_of, message_text
from drivetrain.spark.compile.frame import Frame, message_class
from drivetrain.spark.compile.surroundings import Surroundings
from drivetrain.spark.session.dataframe_calls import filtered, parsed_schema, selected, without_columns
from drivetrain.spark.session.spark_errors import embedded
from drivetrain.spark.session.spark_text import quoted

OUTPUT = "__output"


@dataclass(frozen=True)
class ResultColumns:
    """The columns of a Task's results, without the timestamp: pickled to the workers.

    `names` are the columns of the main output, `outputs` those of each named one.
    """

    type: MessageType
    names: StructType
    outputs: tuple[tuple[str, MessageType, StructType], ...] = ()

    @classmethod
    def of(cls, operation: Process) -> Self:
        """The columns of a Task in the graph."""
        outputs = tuple((name, type, _columns(type)) for name, type in operation.outputs)
        names = _columns(operation.type) if outputs else parsed_schema(operation.type.ddl)
        return cls(operation.type, names, outputs)

    @property
    def schema(self) -> StructType:
        """The columns of the Task's DataFrame."""
        fields = [StructField(name, columns) for name, _, columns in self.outputs]
        return StructType(
            [*self.names.fields, *([StructField(OUTPUT, StructType(fields))] if fields else [])]
        )

    def arrays(self, results: Sequence[Any], operator: str) -> list[pa.Array]:
        """The columns of results in order; raises an embedded `OperatorError` for one that does not fit."""
        main = to_arrow_schema(self.names, timezone="UTC")
        if NamedOutput not in set(map(type, results)):
            columns = columns_of(list(results), self.type, main, operator)
            return [*columns, *self._without_outputs(len(results))]
        self._refuse_unknown(results, operator)
        of_main = [i for i, result in enumerate(results) if type(result) is not NamedOutput]
        arrays = columns_of([results[i] for i in of_main], self.type, main, operator)
        places = _places(of_main, len(results))
        fields = []
        for name, declared, columns in self.outputs:
            schema = to_arrow_schema(columns, timezone="UTC")
            own = [
                i for i, result in enumerate(results) if type(result) is NamedOutput and result.output == name
            ]
            values = columns_of(
                [results[i].value for i in own], declared, schema, f"{operator}, its output {name}"
            )
            fields.append(_struct(values, schema).take(_places(own, len(results))))
        return [*(array.take(places) for array in arrays), self._divided(fields, places.is_valid())]

    def table(self, result: Any, operator: str, *, timed: bool) -> pa.Table:
        """The columns, and the timestamp, of an Arrow batch or table that a Task emits.

        Raises an embedded `OperatorError` for one with other columns.
        """
        name, made = (result.output, result.value) if isinstance(result, NamedOutput) else (None, result)
        if name is not None:
            self._refuse_unknown([result], operator)
        columns = self.names if name is None else next(c for n, _, c in self.outputs if n == name)
        given = _arrow_table(made, columns, operator, timed=timed)
        stamps = [given.column(TS)] if timed else []
        own = given.drop_columns([TS]) if timed else given
        data = list(own.columns)
        if name is not None:
            nulls = [pa.nulls(len(own), f.type) for f in to_arrow_schema(self.names, timezone="UTC")]
            combined = [column.combine_chunks() for column in data]
            fields = [
                _struct(combined, own.schema)
                if n == name
                else pa.nulls(len(own), pa.struct(list(to_arrow_schema(c, timezone="UTC"))))
                for n, _, c in self.outputs
            ]
            data = [*nulls, self._divided(fields, pa.array([False] * len(own)))]
        else:
            data += self._without_outputs(len(own))
        return pa.Table.from_arrays([*data, *stamps], names=[*self.schema.names, *([TS] if timed else [])])

    def _divided(self, fields: list[pa.Array], is_main: pa.Array) -> pa.Array:
        names = [name for name, _, _ in self.outputs]
        return pa.StructArray.from_arrays(fields, names=names, mask=is_main)

    def _without_outputs(self, rows: int) -> list[pa.Array]:
        if not self.outputs:
            return []
        return [pa.nulls(rows, to_arrow_schema(self.schema, timezone="UTC").field(OUTPUT).type)]

    def _refuse_unknown(self, results: Sequence[Any], operator: str) -> None:
        known = [name for name, _, _ in self.outputs]
        for result in results:
            if type(result) is NamedOutput and result.output not in known:
                raise embedded(
                    OperatorError(
                        f"the Task has no output {result.output!r}: its class declares "
                        f"{', '.join(known) or 'none'} in outputs",
                        operator=operator,
                        message=message_text(result),
                        user_traceback="",
                    )
                )


def divided(frame: Frame) -> Frame:
    """The frame of a Task without the results for named outputs; the processors `Output` find them in it."""
    if OUTPUT not in frame.df.columns:
        return frame
    main = without_columns(filtered(frame.df, f"{OUTPUT} IS NULL"), OUTPUT)
    return Frame(main, (), frame.message, with_outputs=frame.df)


def named_output(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The results that the Task before it has emitted to the output of this name."""
    operation, df = node.operation, inputs[0].with_outputs
    assert isinstance(operation, Output)
    assert df is not None
    own = f"{OUTPUT}.{quoted(operation.name)}"
    stamp = [TS] if TS in df.columns else []
    results = selected(filtered(df, f"{own} IS NOT NULL"), f"{own} AS {OUTPUT}", *stamp)
    return Frame(selected(results, f"{OUTPUT}.*", *stamp), (), message_class(operation.type))


def _columns(declared: MessageType) -> StructType:
    """The columns of an output: all nullable, since they are null in the rows of other outputs."""
    fields = parsed_schema(declared.ddl).fields
    return StructType([StructField(field.name, field.dataType) for field in fields])


def _places(of: Sequence[int], rows: int) -> pa.Array:
    """For each row the index of its result among those in the rows `of`, null for all other rows."""
    places: list[int | None] = [None] * rows
    for i, row in enumerate(of):
        places[row] = i
    return pa.array(places, pa.int64())


def _struct(arrays: list[pa.Array], schema: pa.Schema) -> pa.Array:
    return pa.StructArray.from_arrays(arrays, fields=list(schema))


def _arrow_table(made: Any, columns: StructType, operator: str, *, timed: bool) -> pa.Table:
    fields = [*to_arrow_schema(columns, timezone="UTC")]
    fields += [pa.field(TS, pa.timestamp("us", "UTC"))] if timed else []
    names = [field.name for field in fields]
    if not isinstance(made, pa.RecordBatch | pa.Table):
        raise refusal(
            f"on_batch must give Arrow batches or tables, got {message_text(made)} ({type(made).__name__})",
            operator,
        )
    missing = [name for name in names if name not in made.schema.names]
    if missing:
        raise refusal(
            f"on_batch left out the column {missing[0]!r}: expected {', '.join(names)}, "
            f"got {', '.join(made.schema.names)}",
            operator,
        )
    table = pa.Table.from_batches([made]) if isinstance(made, pa.RecordBatch) else made
    try:
        return table.select(names).cast(pa.schema(fields))
    except pa.ArrowException as error:
        raise refusal(f"what on_batch gave does not have the declared types: {error}", operator) from error


def refusal(what: str, operator: str) -> Exception:
    """The error of a Task that does something forbidden, in the form that reaches the driver."""
    return embedded(OperatorError(what, operator=operator, message=None, user_traceback=""))
