"""The configuration of one run: every key with its value and where it came from.

Problem: a value can come from four places, and an error must say which place, on which line, what was
expected there, and which key was probably meant.

Design: `Config.load` reads each place into `Origin`s keyed by name, weakest first, so that a later place
overwrites an earlier one. A key that is a table (`spark.conf`) is merged entry by entry instead.

Invariants:
1. A loaded configuration has a valid value for every key of the catalog; it never changes.
2. The order of precedence is --set, environment, TOML file, default.
3. Nothing is ignored: an entry that matches no key is an error.

Called by the commands, the Spark session and the actor systems.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

from drivetrain.config.catalog import ALL_KEYS
from drivetrain.config.key import ENVIRONMENT_PREFIX, Key, environment_name
from drivetrain.config.nearest import did_you_mean
from drivetrain.config.references import is_literal_secret, shown, without_password
from drivetrain.config.toml_file import read_toml
from drivetrain.errors import ConfigError

T = TypeVar("T")

CONFIG_VARIABLE: Final = "DRIVETRAIN_CONFIG"
"""The environment variable that names the TOML file; it is read by the commands and is not a key."""

_NO_KEYS: Final = frozenset(
    {
        CONFIG_VARIABLE,
        "DRIVETRAIN_SECRET",
        "DRIVETRAIN_SEEDS",
        "DRIVETRAIN_SEED",
        "DRIVETRAIN_TRACE",
        "DRIVETRAIN_CRASH_AT",
    }
)
"""Variables that begin like a key's but are not: the secret, because a configuration is shown and a secret is
not; those of `drivetrain.simulator`; and that of `drivetrain.crash_points`."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The text given for a key, and its place: "drivetrain.toml:3", an environment variable, or "--set"."""

    raw: object
    place: str


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """A key with its value and the places that it came from ("default" when it was not set)."""

    key: Key[T]
    value: T
    place: str

    @property
    def shown(self) -> str:
        """The value as a user would write it, except literal secrets."""
        if not self.key.is_table:
            text = self.key.parse.show(self.value)
            return "***" if is_literal_secret(self.key.name, text) else text
        entries = cast(Mapping[str, str], self.value)
        return json.dumps({name: shown(name, entries[name]) for name in sorted(entries)})


class Config:
    """Every key with its value; `config[KEY]` has the type of the key.

    Immutable and picklable. `Config()` holds the defaults.
    """

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, Setting[Any]] | None = None) -> None:
        defaults = {key.name: Setting(key, key.default_value, "default") for key in ALL_KEYS.values()}
        self._settings = MappingProxyType(defaults | dict(settings or {}))

    @classmethod
    def load(
        cls,
        toml: Path | None = None,
        environ: Mapping[str, str] | None = None,
        sets: Mapping[str, str] | None = None,
    ) -> Config:
        """Read the configuration: `sets` (keyed by key name) win over `environ` over the file `toml`.

        `environ` is keyed by variable name; only those that begin with DRIVETRAIN_ are read. Raises
        ConfigError for a file that cannot be read, an unknown key and a value that is not valid for its key.
        """
        places = [
            _from_toml(toml) if toml is not None else {},
            _from_environment(environ or {}),
            _from_sets(sets or {}),
        ]
        settings: dict[str, Setting[Any]] = {}
        for origins in places:
            for written, origin in origins.items():
                key = _key_of(written, origin)
                settings[key.name] = _read(key, written, origin, settings.get(key.name))
        return cls(settings)

    def __getitem__(self, key: Key[T]) -> T:
        return cast(T, self._settings[key.name].value)

    def __iter__(self) -> Iterator[Setting[Any]]:
        return iter(self._settings.values())

    def __reduce__(self) -> tuple[object, ...]:
        # Parsers hold functions, so the original texts are sent to other processes.
        written = {s.key.name: (s.key.parse.show(s.value), s.place) for s in self if s.place != "default"}
        return (_rebuild, (written,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(setting.shown for setting in self))

    def __repr__(self) -> str:
        changed = ", ".join(f"{s.key.name}={s.shown}" for s in self if s.place != "default")
        return f"Config({changed})"

    def literal_secrets(self) -> list[tuple[str, str]]:
        """The keys and entries of tables that hold a literal secret, with the places they came from."""
        return [
            (f"{setting.key.name}.{name}" if name else setting.key.name, setting.place)
            for setting in self
            for name, value in sorted(_texts(setting).items())
            if is_literal_secret(name or setting.key.name, value)
        ]

    def _values(self) -> Mapping[str, object]:
        return {setting.key.name: setting.value for setting in self}


def _texts(setting: Setting[Any]) -> Mapping[str, str]:
    """The texts of a setting by the names of entries; "" for a setting that is no table."""
    if setting.key.is_table:
        return {name: str(value) for name, value in setting.value.items()}
    return {"": setting.value} if isinstance(setting.value, str) else {}


def find_key(name: str) -> Key[Any] | None:
    """The key called `name`, or the table key that `name` is an entry of; or None."""
    if name in ALL_KEYS:
        return ALL_KEYS[name]
    tables = (key for key in ALL_KEYS.values() if key.is_table)
    return next((key for key in tables if name.startswith(f"{key.name}.")), None)


def _from_toml(path: Path) -> Mapping[str, Origin]:
    tables = frozenset(key.name for key in ALL_KEYS.values() if key.is_table)
    return {entry.name: Origin(entry.value, f"{path}:{entry.line}") for entry in read_toml(path, tables)}


def _from_environment(environ: Mapping[str, str]) -> Mapping[str, Origin]:
    names = {environment_name(name): name for name in ALL_KEYS}
    origins: dict[str, Origin] = {}
    for variable, raw in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _NO_KEYS:
            continue
        if variable not in names:
            raise ConfigError(
                "no configuration key has this environment variable",
                where=f"environment variable {variable}",
                remedy=did_you_mean(variable, names, otherwise="`drivetrain config` lists every key"),
            )
        origins[names[variable]] = Origin(raw, f"environment variable {variable}")
    return origins


def _from_sets(sets: Mapping[str, str]) -> Mapping[str, Origin]:
    return {name: Origin(raw, f"--set {name}") for name, raw in sets.items()}


def _key_of(written: str, origin: Origin) -> Key[Any]:
    key = find_key(written)
    if key is None:
        raise ConfigError(
            f'unknown configuration key "{written}"',
            where=origin.place,
            remedy=did_you_mean(written, ALL_KEYS, otherwise="`drivetrain config` lists every key"),
        )
    return key


def _read(key: Key[Any], written: str, origin: Origin, earlier: Setting[Any] | None) -> Setting[Any]:
    entry = written.removeprefix(key.name).removeprefix(".") if key.is_table else ""
    raw = {entry: origin.raw} if entry else origin.raw
    if isinstance(raw, str):
        without_password(raw, f"{written} ({origin.place})")
    try:
        value = key.parse.read(raw)
    except ValueError as error:
        raise ConfigError(
            f'the value of "{written}" cannot be read',
            where=origin.place,
            expected=key.parse.expected,
            got=repr(origin.raw),
            remedy=f'write it as in the default, "{key.parse.show(key.default_value)}": {key.doc}',
        ) from error
    place = origin.place
    if key.is_table and earlier is not None:
        value = MappingProxyType({**earlier.value, **value})
        place = f"{earlier.place}, {place}"
    return Setting(key, value, place)


def _rebuild(written: Mapping[str, tuple[str, str]]) -> Config:
    settings = {
        name: Setting(ALL_KEYS[name], ALL_KEYS[name].parse.read(raw), place)
        for name, (raw, place) in written.items()
    }
    return Config(settings)
