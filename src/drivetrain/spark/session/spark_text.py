"""Names, texts and options as Spark's SQL.

An expression of `pyspark.sql.functions` costs several calls into Java for each function in it. Code that runs
for each batch pays for them each time. As text, an expression of any size is one call.

Called by modules that build expressions for each batch: `small_batches`, file formats, sinks.
"""

from __future__ import annotations

from collections.abc import Mapping


def quoted(name: str) -> str:
    """A column's name, quoted for Spark.

    >>> quoted("my `col`")
    '`my ``col```'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    r"""A text as a literal of Spark's SQL.

    >>> literal("it's")
    "'it\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def options(given: Mapping[str, str]) -> str:
    """Options of a function, such as `to_json`.

    >>> options({"timeZone": "UTC"})
    "map('timeZone', 'UTC')"
    """
    return f"map({', '.join(literal(text) for pair in given.items() for text in pair)})"
