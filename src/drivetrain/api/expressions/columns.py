"""Columns without Spark: `col("delay") > 15` is recorded now and becomes a Spark column later.

A PySpark column needs a running Spark. An application must be buildable without one (planning,
submitting, testing), so operators take our own `Column`, which only records the calls of functions of
`pyspark.sql.functions` and of methods of its columns, with their arguments. Layer `spark` makes the same
calls. `spark_functions.F` offers every function of `pyspark.sql.functions` under its own name.

>>> str(col("delay") > 15)
'(delay > 15)'
>>> str(col("carrier").alias("c"))
"carrier.alias('c')"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from drivetrain.api.expressions.spark_names import COLUMN_METHODS
from drivetrain.api.location import caller
from drivetrain.api.spelling import unknown_name
from drivetrain.errors import GraphError

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "mod": "%", "pow": "**",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "&", "or": "|",
}  # fmt: skip
_UNARY = {"__invert__": "~", "__neg__": "-"}


@dataclass(frozen=True, eq=False)
class Column:
    """A recorded Spark column: the call (`op`) and its arguments (`args`, `kwargs`).

    `op` is `function:NAME` for a function of `pyspark.sql.functions`, `method:NAME` for a method of
    the first argument. Use it as you would a PySpark column; nothing is computed.

    >>> print(col("price") * 2 > 10)
    ((price * 2) > 10)
    >>> print(col("item").startswith("t") & ~col("sold").isNull())
    (item.startswith('t') & ~sold.isNull())
    """

    op: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def _method(self, name: str, *args: Any) -> Column:
        return Column(f"method:{name}", (self, *args))

    def __getattr__(self, name: str) -> Callable[..., Column]:
        if name not in COLUMN_METHODS:
            if name.startswith("_"):
                raise AttributeError(name)
            error = unknown_name("a column", name, COLUMN_METHODS)
            error.add_note(f'A field of a struct is col("x.{name}") or col("x").getField("{name}").')
            raise error

        def call(*args: Any, **kwargs: Any) -> Column:
            return Column(f"method:{name}", (self, *args), tuple(sorted(kwargs.items())))

        return call

    def __getitem__(self, key: Any) -> Column:
        return self._method("getItem", key)

    def __invert__(self) -> Column:
        return self._method("__invert__")

    def __neg__(self) -> Column:
        return self._method("__neg__")

    def __add__(self, other: object) -> Column:
        return self._method("__add__", other)

    def __radd__(self, other: object) -> Column:
        return self._method("__radd__", other)

    def __sub__(self, other: object) -> Column:
        return self._method("__sub__", other)

    def __rsub__(self, other: object) -> Column:
        return self._method("__rsub__", other)

    def __mul__(self, other: object) -> Column:
        return self._method("__mul__", other)

    def __rmul__(self, other: object) -> Column:
        return self._method("__rmul__", other)

    def __truediv__(self, other: object) -> Column:
        return self._method("__truediv__", other)

    def __rtruediv__(self, other: object) -> Column:
        return self._method("__rtruediv__", other)

    def __mod__(self, other: object) -> Column:
        return self._method("__mod__", other)

    def __rmod__(self, other: object) -> Column:
        return self._method("__rmod__", other)

    def __pow__(self, other: object) -> Column:
        return self._method("__pow__", other)

    def __rpow__(self, other: object) -> Column:
        return self._method("__rpow__", other)

    def __eq__(self, other: object) -> Column:  # type: ignore[override]  # a column, as in PySpark
        return self._method("__eq__", other)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]  # a column, as in PySpark
        return self._method("__ne__", other)

    def __lt__(self, other: object) -> Column:
        return self._method("__lt__", other)

    def __le__(self, other: object) -> Column:
        return self._method("__le__", other)

    def __gt__(self, other: object) -> Column:
        return self._method("__gt__", other)

    def __ge__(self, other: object) -> Column:
        return self._method("__ge__", other)

    def __and__(self, other: object) -> Column:
        return self._method("__and__", other)

    def __rand__(self, other: object) -> Column:
        return self._method("__rand__", other)

    def __or__(self, other: object) -> Column:
        return self._method("__or__", other)

    def __ror__(self, other: object) -> Column:
        return self._method("__ror__", other)

    def __bool__(self) -> bool:
        raise TypeError("a column has no truth value: write & for and, | for or, ~ for not, with parentheses")

    def __iter__(self) -> Any:
        raise TypeError("a column cannot be iterated")

    def __str__(self) -> str:
        kind, name = self.op.split(":", 1)
        if kind == "function":
            if name in ("col", "expr"):
                return str(self.args[0])
            if name == "lit":
                return repr(self.args[0])
            return f"{name}({self._arguments(self.args)})"
        if name in _UNARY:
            return f"{_UNARY[name]}{_text(self.args[0])}"
        symbol = _BINARY.get(name.strip("_").removeprefix("r")) or _BINARY.get(name.strip("_"))
        if symbol and name.startswith("__") and len(self.args) == 2:
            left, right = (self.args[1], self.args[0]) if name.startswith("__r") else self.args
            return f"({_text(left)} {symbol} {_text(right)})"
        return f"{_text(self.args[0])}.{name}({self._arguments(self.args[1:])})"

    def _arguments(self, args: tuple[Any, ...]) -> str:
        return ", ".join([*map(_text, args), *(f"{k}={_text(v)}" for k, v in self.kwargs)])

    __hash__ = object.__hash__


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value) if isinstance(value, Column) else repr(value)


def col(name: str) -> Column:
    """The column of that name.

    >>> print(col("customer.address")["city"])
    customer.address.getItem('city')
    """
    return Column("function:col", (name,))


def lit(value: Any) -> Column:
    """A column with a constant value.

    >>> print(lit("tea"))
    'tea'
    """
    return Column("function:lit", (value,))


def expr(sql: str) -> Column:
    """A column from an SQL expression, as in `expr("delay / 60 AS hours")`.

    Raises `GraphError` with a mark at the position that Spark cannot read. Whether the columns exist is
    checked when they are known: by `drivetrain plan --check`, and when the application starts.

    >>> print(expr("round(price / 100, 2)"))
    round(price / 100, 2)
    """
    from drivetrain.api.expressions.sql import require_expression  # only applications with SQL text need it

    require_expression(sql)
    return Column("function:expr", (sql,))


def require_free_names(names: Iterable[str]) -> None:
    """Raise `GraphError` for column names that Drivetrain reserves for itself."""
    for name in names:
        if name.startswith("__"):
            raise GraphError(
                f"the column name {name!r} is reserved",
                where=str(caller()),
                expected="a name that does not begin with two underscores",
            )


def timestamp() -> Column:
    """The event timestamp of the message.

    >>> sales.with_columns(hour=F.hour(timestamp()))
    Stream('with_columns')
    """
    return Column("function:col", ("__ts",))
