"""Finds the Java that Spark would start; works without Java or PySpark.

Called by `session`, `class_archive`, `local_files`, and `drivetrain doctor`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Final

QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""The options that stop Java's warnings about its own modules and archives on standard output and error."""


def java_program(environ: Mapping[str, str] = os.environ) -> str | None:
    """The Java of JAVA_HOME, whether or not it exists, else the first on the PATH, else None."""
    home = environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH"))
