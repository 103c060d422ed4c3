"""The files of a state directory that say how an application has changed while it ran.

Problem: an application whose checkpoints are copied may continue on another machine, where it has to run as
it was changed last, and be able to go back to earlier versions of its graph.

Design: these files are copied beside each checkpoint, and before a change comes into force (see
`copied_checkpoints`), as they are on the disk. There are few of them: the records and outcomes of the newest
versions, the code of those to which a user may still go back, the changed configuration, and the scaling
that is wanted.

Invariants:

1. The code of the version in force is among them, and of the one before it.
2. Nothing outside of the state directory is written, whatever the names are that a store has.

Called by `checkpoint_copying`, `application_copies`, `copying` and `from_savepoint`.
Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from drivetrain.durable import sync, write_whole, writing
from drivetrain.errors import InputError
from drivetrain.private_files import Writers, make_private_directory
from drivetrain.runtime import running_config as changed_configuration
from drivetrain.runtime import scalings, wanted_scaling
from drivetrain.runtime.graph_versions import FOLDER, GraphVersions

_RECORDS: Final = 50
"""How many versions are copied, the newest."""
_CODES: Final = 10
"""Of how many the code is copied, too."""
_IN_FORCE: Final = 3
"""And of how many of the newest that were not rolled back: the one in force, and those before it."""
_OTHERS: Final = (changed_configuration.NAME, wanted_scaling.FILE, scalings.FILE)
_OF_VERSIONS: Final = re.compile(rf"{FOLDER}/[0-9]+(\.graph|\.outcome|\.stages)?")


def change_files(state: Path, more: Iterable[str] = ()) -> dict[str, Path]:
    """The files by their names in the state directory; `more` are names of files that are about to be there.

    Code, which is the largest part, is left out of older versions.
    """
    stored = GraphVersions(state)
    numbers = sorted({*stored.numbers(), *(number for name in more if (number := _number(name)))})
    in_force = _in_force(stored, numbers)
    records, codes = {*numbers[-_RECORDS:], *in_force}, {*numbers[-_CODES:], *in_force}
    names = [f"{FOLDER}/{n}{end}" for n in sorted(records) for end in ("", ".outcome", ".stages")]
    names += [f"{FOLDER}/{n}.graph" for n in sorted(codes)]
    names += _OTHERS
    return {name: state / name for name in names if (state / name).exists()}


def _in_force(stored: GraphVersions, numbers: list[int]) -> list[int]:
    """The newest versions that were not rolled back."""
    found: list[int] = []
    for number in reversed(numbers):
        if len(found) == _IN_FORCE:
            break
        if not _is_rolled_back(stored, number):
            found.append(number)
    return found


def _is_rolled_back(stored: GraphVersions, number: int) -> bool:
    try:
        return stored.is_rolled_back(number)
    except InputError:
        return False  # it may be needed


def _number(name: str) -> int:
    """The version that comes into force with a file; 0: none does."""
    folder, _, number = name.partition("/")
    return int(number) if folder == FOLDER and number.isdigit() else 0


def lay_out(state: Path, files: Mapping[str, bytes], writers: Writers) -> None:
    """Write such files into a state directory, whose lock this process holds; others are passed over."""
    known = {name: files[name] for name in files if name in _OTHERS or _OF_VERSIONS.fullmatch(name)}
    if not known:
        return
    with writing("how the application was changed", state):
        make_private_directory(state / FOLDER, "the versions of an application", writers)
        for name, content in known.items():
            write_whole(state / name, content)
        sync(state)
