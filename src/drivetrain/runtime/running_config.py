"""The configuration of a running application: the one that it was started with, and later changes.

Problem: a value that is changed while an application runs must reach its fragments, in whichever process each
of them is, and must outlast a crash; a damaged file must not end a run.

Design: one small durable file in the application's state directory holds the changed values as a user writes
them. A reader of a value asks `RunningConfig`, which reads the file again when it has changed: looking costs
one call of the system. What if we die here: the file has the previous values, or the new ones.

Invariants:

1. A value that is not in the file is that of the configuration with which the process was started.
2. The file holds only keys of `core.job.changeable_keys`, with values that these can have.

Called by `configuring`, which changes values, and by the readers `batch_limit`, `micro_batch_query` and
`coordinator_actor`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from drivetrain.config import Config
from drivetrain.config.key import Key
from drivetrain.core.job.changeable_keys import CHANGEABLE, checked, require_changeable
from drivetrain.errors import ConfigError, InputError
from drivetrain.runtime.durable_file import DurableFile, Keep

NAME: Final = "changed-configuration.json"

T = TypeVar("T")


class ChangedValue(msgspec.Struct, frozen=True):
    """A key whose value has changed: before and after, as a user writes them."""

    name: str
    before: str
    after: str


class RunningConfig:
    """The configuration of the application whose state is in `home`, which was started with `config`.

    `keep` notes changed values elsewhere, just before they are changed here.
    """

    def __init__(self, home: Path, config: Config, keep: Keep | None = None) -> None:
        self._home: Final = home
        self._config: Final = config
        self._keep: Final = keep
        self._lock: Final = threading.Lock()
        self._seen: object = None  # of the file when it was last read
        self._changed: Config = config
        self._names: frozenset[str] = frozenset()

    def __getitem__(self, key: Key[T]) -> T:
        """The value now; the last known one while the file cannot be read."""
        with self._lock:
            self._look()
            return self._changed[key] if key.name in self._names else self._config[key]

    def started_with(self, key: Key[T]) -> T:
        """The value with which the application was started."""
        return self._config[key]

    def changed(self) -> dict[str, str]:
        """The values that were changed, by key; raises InputError if the file is damaged."""
        return _read(self._home, self._config)

    def change(self, values: Mapping[str, str], restored: Iterable[str] = ()) -> tuple[ChangedValue, ...]:
        """Change values, and give `restored` keys back those with which the application was started.

        Returns what is different now. Raises ConfigError, and then nothing has changed, as for a damaged file
        (InputError), DiskFullError or OutputError when the file cannot be written, and what `keep` raises.
        """
        given_back = tuple(restored)
        require_changeable(given_back)
        for name in given_back:
            if name in values:
                raise ConfigError(f"{name} is both set and unset", remedy="give one of the two")
        with self._lock:
            before = _read(self._home, self._config)
            after = {name: text for name, text in {**before, **values}.items() if name not in given_back}
            checked(after, self._config)
            found = tuple(self._differences(before, after))
            if after != before:
                _file(self._home).write_kept(msgspec.json.encode(after), self._keep)
            self._look()
        return found

    def _differences(self, before: Mapping[str, str], after: Mapping[str, str]) -> list[ChangedValue]:
        texts = [
            (name, self._text(CHANGEABLE[name], before), self._text(CHANGEABLE[name], after))
            for name in CHANGEABLE
        ]
        return [ChangedValue(*each) for each in texts if each[1] != each[2]]

    def _text(self, key: Key[Any], values: Mapping[str, str]) -> str:
        value = key.parse.read(values[key.name]) if key.name in values else self._config[key]
        return key.parse.show(value)

    def _look(self) -> None:
        seen = _state_of(self._home / NAME)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            values = _read(self._home, self._config)
        except InputError:
            return  # a command that changes the configuration shows the error; the run keeps what it knows
        self._changed, self._names = Config.load(None, {}, values), frozenset(values)


def _state_of(path: Path) -> object:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read(home: Path, config: Config) -> dict[str, str]:
    """The changed values, without those that are too large for the configuration of this run."""
    file = _file(home)
    content = file.read()
    if content is None:
        return {}
    try:
        values = msgspec.json.decode(content, type=dict[str, str])
        Config.load(None, {}, values)
    except (msgspec.MsgspecError, ConfigError) as error:
        raise file.damaged(str(error)) from error
    return {name: text for name, text in values.items() if _fits(name, text, config)}


def _fits(name: str, text: str, config: Config) -> bool:
    try:
        checked({name: text}, config)
    except ConfigError:
        return False
    return True


def _file(home: Path) -> DurableFile:
    return DurableFile(
        home / NAME,
        "the configuration that was changed while the application ran",
        if_damaged="delete the file, and change the values again with drivetrain update --set",
        if_full="make room and change it again: nothing has changed",
    )
