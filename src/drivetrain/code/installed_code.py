"""Tells installed packages and Python's own modules from the code of a user's application.

The user's code is sent by value, counts in the fingerprint of a version and is shown in tracebacks; installed
packages do none of that. A package may lie in the environment, in the one below it
(`--system-site-packages`), in the user's own folder (`pip install --user`), or behind a link. So a file
counts as installed if its path, as Python spells it or with all links resolved, is below one of these; they
are taken in both forms, too.

Called by `fingerprint`, `application_file` and `code_shipping`.
"""

from __future__ import annotations

import functools
import os
import site
import sysconfig
from pathlib import Path
from typing import Final

_OURS: Final = Path(__file__).parents[1]


def is_installed(file: str) -> bool:
    """Whether the file of a module belongs to Python, to an installed package or to Drivetrain."""
    if file.startswith("<frozen"):
        return True
    return file.startswith(_places()) or os.path.realpath(file).startswith(_places())


@functools.cache
def _places() -> tuple[str, ...]:
    schemes = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders = {str(_OURS), *schemes, *site.getsitepackages(), site.getusersitepackages()}
    folders |= {os.path.realpath(folder) for folder in folders}
    return tuple(sorted(f"{folder}{os.sep}" for folder in folders))
