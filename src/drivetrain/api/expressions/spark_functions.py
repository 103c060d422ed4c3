"""`F`: every function of `pyspark.sql.functions`, recorded instead of called.

Building an application needs no Spark; a name that PySpark does not have raises an error in the line that
uses it. Editors and type checkers take the signatures from the generated `spark_functions.pyi`.

>>> str(F.upper("carrier").alias("c"))
"upper('carrier').alias('c')"
>>> F.uppper("carrier")
Traceback (most recent call last):
...
AttributeError: pyspark.sql.functions has no 'uppper': did you mean 'upper'?
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from drivetrain.api.expressions.columns import Column, expr
from drivetrain.api.expressions.spark_names import FUNCTIONS
from drivetrain.api.spelling import unknown_name

_PYTHON: Final = ("udf", "pandas_udf", "arrow_udf", "call_udf")


class SparkFunctions:
    """Every function of `pyspark.sql.functions` under its own name; each returns a `Column`."""

    def __getattr__(self, name: str) -> Callable[..., Column]:
        if name in _PYTHON:
            raise AttributeError(
                f"F has no {name!r}: give Python functions to map, filter or with_columns(column=function)"
            )
        if name not in FUNCTIONS:
            raise unknown_name("pyspark.sql.functions", name, FUNCTIONS)

        if name == "expr":
            return expr

        def call(*args: Any, **kwargs: Any) -> Column:
            return Column(f"function:{name}", args, tuple(sorted(kwargs.items())))

        call.__name__ = name
        return call

    def __dir__(self) -> list[str]:
        return sorted(FUNCTIONS)


F = SparkFunctions()
