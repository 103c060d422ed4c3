"""Finds the Java that Spark would start; works without Java or PySpark.

Called by `session`, `class_archive`, `local_files`, and `drivetrain doctor`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

from drivetrain.errors import MissingDependencyError

JAVA_AT_LEAST: Final = 17
INSTALL_JAVA: Final = (
    f"install Java {JAVA_AT_LEAST} or later (Debian: apt-get install openjdk-{JAVA_AT_LEAST}-jre-headless)"
    " and put it on the PATH, or name its folder by JAVA_HOME"
)
DOES_NOT_START: Final = "correct JDK_JAVA_OPTIONS and JAVA_TOOL_OPTIONS, or install another Java"
_TIMEOUT_S: Final = 30
QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""The options that stop Java's warnings about its own modules and archives on standard output and error."""


def java_program(environ: Mapping[str, str] = os.environ) -> str | None:
    """The Java of JAVA_HOME, whether or not it exists, else the first on the PATH, else None."""
    home = environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH"))


def java_version(program: str) -> tuple[int | None, str]:
    """The major version of a Java, and what it printed; None if that has no version.

    It has none if Java does not start, for example because of an option in JDK_JAVA_OPTIONS. Raises `OSError`
    if the program cannot be run, and `subprocess.TimeoutExpired`.
    """
    asked = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    output = (asked.stdout + asked.stderr).strip()
    return java_major(output), output


def java_major(output: str) -> int | None:
    """The major version in the output of `java -version`: 17 for "17.0.15", 8 for "1.8.0_392", or None."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def require_java() -> None:
    """Raise `MissingDependencyError` unless a Java of version 17 or newer can be started."""
    home = os.environ.get("JAVA_HOME")
    java = java_program()
    if java is None or not os.path.exists(java):
        where = "JAVA_HOME" if home else "PATH"
        raise MissingDependencyError(
            "Spark needs Java, which was not found", where=where, got=home, remedy=INSTALL_JAVA
        )
    try:
        major, output = java_version(java)
    except (OSError, subprocess.TimeoutExpired) as error:
        major, output = None, str(error)
    if major is None:
        raise MissingDependencyError("Java does not start", where=java, got=output, remedy=DOES_NOT_START)
    if major < JAVA_AT_LEAST:
        raise MissingDependencyError(
            "Java is too old",
            where=java,
            expected=f"{JAVA_AT_LEAST} or newer",
            got=str(major),
            remedy=INSTALL_JAVA,
        )
