"""Where PySpark is installed, and its version, without importing it.

Problem: importing PySpark takes half a second of CPU, in which Java could start already; but what Java is
started with depends on PySpark's folder and version.

Called by `class_archive`, `local_files`, `java_start`, and `python_launcher`.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

_VERSION = re.compile(r"__version__[^=]*=\s*[\"']([^\"']+)[\"']")


def spark_folder() -> Path:
    """The folder of the package, which is Spark's home as well; raises ModuleNotFoundError without it."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("PySpark is not installed")
    return Path(found.origin).parent


def spark_version() -> str:
    """The version, as `pyspark.__version__` has it."""
    try:
        found = _VERSION.search((spark_folder() / "version.py").read_text("utf-8"))
    except OSError:
        found = None  # not in files of its own, as in a zip
    if found is not None:
        return found[1]
    import pyspark

    return str(pyspark.__version__)
