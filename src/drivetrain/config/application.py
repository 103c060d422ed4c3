"""Settings that an application declares for itself, beside the catalog: `--set input=/some/text`.

Problem: `--set` has two kinds of target. The application's own settings are known only after its file has
run, yet the file needs their values while it runs, and a misspelt one must not pass silently.

Design: the command puts what was given in a scope (`given_sets`) and runs the file; each `app.setting(…)`
asks `AppSettings.declare`, which answers with the given value, read as the declared type, or the default.
Afterwards `split_sets` sorts what was given into catalog and application, and refuses the rest.

Invariants:
1. After `split_sets`, everything given is in exactly one of the two results.
2. An application's setting never hides a key of the catalog: declaring such a name is an error.

Called by `drivetrain.api` (declare) and the commands (given_sets, split_sets).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

from drivetrain.config.catalog import ALL_KEYS
from drivetrain.config.config import find_key
from drivetrain.config.nearest import did_you_mean
from drivetrain.config.units import Parser, boolean, integer, number, text
from drivetrain.errors import ConfigError

T = TypeVar("T")

_given_sets: ContextVar[Mapping[str, str]] = ContextVar("given_sets", default=MappingProxyType({}))

_PARSERS: Final[Mapping[type, Parser[Any]]] = MappingProxyType(
    {
        str: text(empty_allowed=True),
        int: integer(),
        float: number(),
        bool: boolean(),
        Path: Parser("a path", lambda raw: Path(text().read(raw)), str),
    }
)


@dataclass(frozen=True, slots=True)
class AppSetting(Generic[T]):
    """A setting that an application declares: name, parser, default (None: it must be given), doc."""

    name: str
    parse: Parser[T]
    default: T | None
    doc: str


@contextlib.contextmanager
def given_sets(sets: Mapping[str, str]) -> Iterator[None]:
    """Make `sets` (keyed by name) what applications built inside this scope are given."""
    token = _given_sets.set(MappingProxyType(dict(sets)))
    try:
        yield
    finally:
        _given_sets.reset(token)


def current_sets() -> Mapping[str, str]:
    """What `--set` gave, keyed by name; empty outside `given_sets`."""
    return _given_sets.get()


class AppSettings:
    """The settings that one application has declared so far, keyed by name in order of declaration."""

    def __init__(self) -> None:
        self._declared: dict[str, AppSetting[Any]] = {}
        self._values: dict[str, Any] = {}

    @property
    def declared(self) -> Mapping[str, AppSetting[Any]]:
        """What was declared, keyed by name."""
        return MappingProxyType(self._declared)

    @property
    def values(self) -> Mapping[str, Any]:
        """The value of each declared setting, keyed by name."""
        return MappingProxyType(self._values)

    def declare(
        self,
        name: str,
        *,
        default: T | None = None,
        type: type[T] | Parser[T] | None = None,
        doc: str = "",
    ) -> T:
        """Declare a setting and return its value: what `--set` gave, else the default.

        `type` is str, int, float, bool, pathlib.Path or a `Parser` (`duration_ms()`, `size_bytes()`,
        `choice(…)`); when left out it is that of the default, else str. Raises ConfigError when the value
        cannot be read, when there is neither value nor default, and when the name is a key of the catalog
        or declared twice.
        """
        setting: AppSetting[T] = AppSetting(name, _parser_of(name, type, default), default, doc)
        if find_key(name) is not None:
            raise ConfigError(
                f'the application\'s setting "{name}" has the name of a configuration key',
                remedy="give the application's setting another name",
            )
        if name in self._declared:
            raise ConfigError(
                f'the application declares its setting "{name}" twice', remedy="declare it once"
            )
        self._declared[name] = setting
        value = _value_of(setting, current_sets())
        self._values[name] = value
        return value


def split_sets(
    sets: Mapping[str, str], declared: Collection[AppSetting[Any]]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Sort what `--set` gave, keyed by name, into (keys of the catalog, settings of the application).

    Raises ConfigError, with the nearest name of both, for one that is neither.
    """
    own = {setting.name for setting in declared}
    catalog: dict[str, str] = {}
    application: dict[str, str] = {}
    for name, raw in sets.items():
        if name in own:
            application[name] = raw
        elif find_key(name) is not None:
            catalog[name] = raw
        else:
            listed = ", ".join(sorted(own)) or "no settings of its own"
            raise ConfigError(
                f'neither a configuration key nor a setting of the application: "{name}"',
                where=f"--set {name}",
                expected=f"a key listed by `drivetrain config`, or of this application: {listed}",
                remedy=did_you_mean(name, [*sorted(own), *ALL_KEYS], otherwise="check the spelling"),
            )
    return MappingProxyType(catalog), MappingProxyType(application)


def _parser_of(name: str, type_: type[T] | Parser[T] | None, default: T | None) -> Parser[T]:
    if isinstance(type_, Parser):
        return type_
    wanted: Any = type_ if type_ is not None else (str if default is None else type(default))
    parser = _PARSERS.get(wanted) or next((p for t, p in _PARSERS.items() if issubclass(wanted, t)), None)
    if parser is None:
        raise ConfigError(
            f'the application\'s setting "{name}" has a type that cannot be read from text',
            expected="str, int, float, bool, pathlib.Path, or a parser such as duration_ms()",
            got=getattr(wanted, "__name__", repr(wanted)),
            remedy="declare it with one of these types",
        )
    return cast("Parser[T]", parser)


def _value_of(setting: AppSetting[T], given: Mapping[str, str]) -> T:
    if setting.name not in given:
        if setting.default is None:
            raise ConfigError(
                f'the application needs a value for its setting "{setting.name}"'
                + (f": {setting.doc}" if setting.doc else ""),
                expected=setting.parse.expected,
                remedy=f"add --set {setting.name}=…",
            )
        return setting.default
    raw = given[setting.name]
    try:
        return setting.parse.read(raw)
    except ValueError as error:
        raise ConfigError(
            f'the value of the application\'s setting "{setting.name}" cannot be read',
            where=f"--set {setting.name}",
            expected=setting.parse.expected,
            got=repr(raw),
            remedy=f"write --set {setting.name}=…" + (f": {setting.doc}" if setting.doc else ""),
        ) from error
