"""Java classes that PySpark and Drivetrain use in every batch, each looked up once for each Java process.

Problem: `jvm.PythonUtils` asks Java each time what that name is. Java tries it with every package that
PySpark has imported, in every jar. A run of three small batches asked 179 times, for 5 % of Java's CPU time.

Design: the view of the Java process keeps attributes that are set on it, and asks only for others. So a class
that has been found is set as an attribute, under the name by which PySpark asks for it. A class asks Java the
same about its methods, each time that one is called: those are set as its attributes likewise.

Called by `spark.session.spark_session`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from py4j.java_gateway import JavaClass, JVMView
from py4j.protocol import Py4JError

_USED_IN_BATCHES: Final = (
    "PythonForeachBatchHelper",
    "PythonRDD",
    "PythonSQLUtils",
    "PythonUtils",
    "SerDeUtil",
    "SimplePythonFunction",
    "functions",
    "org.apache.spark.sql.Observation",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource",
    "org.apache.spark.sql.functions",
)
"""The names that PySpark's modules use."""
_METHODS: Final = {
    "PythonUtils": ("toArray", "toList", "toScalaMap", "toSeq"),
    "functions": ("col", "expr", "lit"),
    "org.apache.spark.sql.api.python.PythonSQLUtils": ("toPyRow",),
    "org.apache.spark.sql.functions": ("col", "expr", "lit"),
}
"""The methods of these classes that PySpark calls for its operations."""


def remember_classes(jvm: JVMView) -> None:
    """Look up the classes and methods that batches use; what this PySpark does not know is left alone."""
    for name in _USED_IN_BATCHES:
        found = java_class(jvm, name)
        for method in _METHODS.get(name, ()) if isinstance(found, JavaClass) else ():
            with suppress(Py4JError):
                setattr(found, method, getattr(found, method))


def java_class(jvm: JVMView, name: str) -> Any:
    """The class of that name; Java is asked the first time only."""
    found = getattr(jvm, name)
    if isinstance(found, JavaClass):
        setattr(jvm, name, found)
    return found
