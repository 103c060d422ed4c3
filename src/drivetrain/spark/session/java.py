"""Which Java Spark would start; needs neither Java nor PySpark to be there.

Called by `session`, `class_archive`, and `drivetrain doctor`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping


def java_program(environ: Mapping[str, str] = os.environ) -> str | None:
    """The Java of JAVA_HOME, whether it is there or not, else the first on the PATH, else None."""
    home = environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java", path=environ.get("PATH"))
