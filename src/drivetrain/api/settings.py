"""Settings that an application declares: `app.setting("input")`, with values from the user who runs it.

An application is a program that is executed before its settings are known to it, so values are not passed as
arguments: the loader puts them into the context (`given_settings`), where declarations find them.

Called by `application`; values are given by `drivetrain.code.application_file`.
"""

from __future__ import annotations

import contextlib
import contextvars
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drivetrain.config.nearest import nearest
from drivetrain.config.references import HOW, REFERENCE, Secret
from drivetrain.errors import ConfigError

REQUIRED: Final = object()
"""The default of a required setting."""
_NONE_GIVEN: Mapping[str, str] = types.MappingProxyType({})
_given: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("settings", default=_NONE_GIVEN)


@contextlib.contextmanager
def given_settings(values: Mapping[str, str]) -> Iterator[None]:
    """Within the block, `Application.setting` reads `values`, which are keyed by the names of settings."""
    token = _given.set(dict(values))
    try:
        yield
    finally:
        _given.reset(token)


@dataclass(frozen=True)
class Setting:
    """A declared setting: its name, type, default (None when required), documentation and value.

    `secret` is None if the application does not declare it.
    """

    name: str
    type: type
    default: Any
    required: bool
    doc: str
    value: Any
    secret: bool | None = None


def declare(
    where: str, name: str, default: Any, *, kind: type | None, doc: str, secret: bool | None
) -> Setting:
    """The setting with its value in this run; raises `ConfigError`, see `Application.setting`."""
    kind = kind or (str if default is REQUIRED or default is None else default.__class__)
    raw = _given.get().get(name)
    required = default is REQUIRED
    if raw is None and required:
        raise ConfigError(
            f"setting {name!r} is required" + (f": {doc}" if doc else ""),
            where=where,
            got=_nearly(name, _given.get()),
            remedy=f"add --set {name}=...",
        )
    value = default if raw is None else _read_setting(name, raw, kind)
    if secret:
        value = _secret(name, value, where)
    return Setting(name, kind, None if required else default, required, doc, value, secret)


def _nearly(name: str, given: Mapping[str, str]) -> str | None:
    """The name that was given, probably by mistake, instead of `name`: the error's "got"."""
    near = nearest(name, given)
    return None if near is None else f"--set {near}, which is no setting"


def _secret(name: str, value: Any, where: str) -> Secret | None:
    if value is None:
        return None
    if not isinstance(value, str) or REFERENCE.search(value) is None:
        raise ConfigError(
            f"the value of the secret setting {name!r} is a literal secret",
            where=where,
            expected="a reference to it: ${NAME} of the environment, or ${file:/path}",
            remedy=HOW,
        )
    return Secret(value)


def _read_setting(name: str, raw: str, kind: type) -> Any:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    try:
        return words[raw.lower()] if kind is bool else kind(raw)
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"setting {name!r} cannot be read",
            where=f"--set {name}={raw}",
            expected=kind.__name__,
            got=repr(raw),
        ) from error
