"""References to secrets: written instead of a password, and resolved where the password is used.

Problem: a password that is written in an application, an option or a command is soon in a registry, a launch
file, a savepoint, a log and a backup of each; and a new password should not mean a new application.

Design: `${NAME}` stands for an environment variable, `${file:/path}` for the content of a file without its
line end, both of the process that resolves it. Only references are stored, sent and shown. They are resolved
at the last moment, in the process that connects, which then knows what must not be printed: `scrubbed`
removes every secret that this process has resolved from a text that becomes an error or a log line.

Invariants:

1. `resolved` leaves no reference in a text, or raises; an error names the reference, never a value.
2. `scrubbed` removes every secret that `resolved` has put into a text. (Except secrets of less than four
   characters: replacing those would make any text unreadable.)

Called by connectors, the Spark session, applications (`Secret`), and by all code that prints.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from drivetrain.errors import DrivetrainError, UserError
from drivetrain.terminal import printable

REFERENCE: Final = re.compile(r"\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|file:(?P<file>[^}]+))\}")
HOW: Final = (
    "put it into an environment variable and write ${ITS_NAME}, or into a file and write ${file:/its/path}; "
    "in a cluster every worker needs it"
)
"""The remedy for a literal secret."""

_HIDDEN: Final = re.compile(
    r"secret|passw|passphrase|token|credential|jaas|access[._-]?key|account[._-]key|oauth|\.key$|key\.pem$",
    re.IGNORECASE,
)
_KNOWN: Final = re.compile(
    r"(?:passw(?:or)?d|passphrase|secret|token|jaas\.config|(?:secret|access|account|api)[._-]?key|keystore\.key"
    r"|ssl\.key\.pem)$|account\.key\.",
    re.IGNORECASE,
)
_URI_PASSWORD: Final = re.compile(r"(?<=://)([^/@\s:]*):([^/@\s]+)(?=@)")
_NO_SECRETS: Final = frozenset(("", "true", "false", "null", "none"))
_JAAS_SECRET: Final = re.compile(
    r"""\b\w*(?:password|secret|token)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;]+))""", re.IGNORECASE
)
_SHORTEST: Final = 4

_resolved: Final[set[str]] = set()
"""The secrets that this process has resolved."""


class SecretNotFoundError(UserError):
    """A reference names a variable that is not set in this process, or a file that it cannot read."""

    code = "secret-not-found"


class Secret(str):
    """A secret setting: the text is a reference, which may be put into options; `value()` is the secret."""

    __slots__ = ()

    def value(self) -> str:
        """The secret itself, in the process that calls this; raises `SecretNotFoundError`.

        Call it where it is used (in a function, in `on_start` of a Task), not while the graph is built.
        """
        return resolved(self)


def is_reference(text: str) -> bool:
    """Whether a text is one reference and nothing else."""
    return REFERENCE.fullmatch(text) is not None


def resolved(text: str, where: str | None = None) -> str:
    """The text with its references replaced by their values in this process; raises `SecretNotFoundError`."""
    return _replaced(text, where, lambda value: value)


def resolved_options(options: Mapping[str, Any], where: str) -> dict[str, str]:
    """Settings of some client with their references replaced; raises `SecretNotFoundError`.

    In a login module's line a secret is quoted as Java requires.
    """
    found = {}
    for name, given in options.items():
        text = str(given)
        quotes = name.endswith("jaas.config") and not is_reference(text)
        found[name] = _replaced(text, f"{name} of {where}", _quoted if quotes else lambda value: value)
    return found


def set_apart(text: str) -> tuple[str, dict[str, str]]:
    """The text with parser-safe placeholders for its references, and the references by placeholder."""
    references: dict[str, str] = {}

    def placeholder(found: re.Match[str]) -> str:
        name = f"drivetrain-reference-{len(references)}-"
        references[name] = found[0]
        return name

    return REFERENCE.sub(placeholder, text), references


def is_hidden(name: str) -> bool:
    """Whether the value of an option or setting of this name is not to be printed."""
    return _HIDDEN.search(name) is not None


def shown(name: str, value: str) -> str:
    """The value of an option or setting, for display: references as they are, other secrets masked."""
    return value if not is_hidden(name) or not REFERENCE.sub("", value) else "***"


class PasswordInUriError(UserError):
    """The URI of a file system has a password in it."""

    code = "password-in-uri"


def without_password(path_or_uri: str, where: str | None = None) -> str:
    """Return a path or the URI of a file system unchanged; raises `PasswordInUriError` if it contains a
    password.

    Such URIs are stored, sent and shown as they are.
    """
    if _URI_PASSWORD.search(path_or_uri) is None:
        return path_or_uri
    raise PasswordInUriError(
        "the URI of a file system has a password in it",
        where=where,
        got=_URI_PASSWORD.sub(r"\1:***", path_or_uri),
        remedy="leave user and password out; give them to the file system by its own means, for S3 in "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile; in a cluster every worker needs them",
    )


def is_literal_secret(name: str, value: str) -> bool:
    """Whether a setting or option for a secret holds a literal one, not a reference."""
    if _KNOWN.search(name) is None or is_reference(value) or value.strip().lower() in _NO_SECRETS:
        return False
    if not name.lower().endswith("jaas.config"):
        return True
    found = ("".join(groups) for groups in _JAAS_SECRET.findall(value))
    return any(secret and not is_reference(secret) for secret in found)


def scrubbed(text: str) -> str:
    """The text without the secrets that this process has resolved."""
    for value in sorted(_resolved, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


def scrub(error: BaseException) -> None:
    """Remove the secrets that this process has resolved from an error and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.args = tuple(map(_scrubbed_any, error.args))
        if isinstance(error, DrivetrainError):
            error.__dict__.update({name: _scrubbed_any(value) for name, value in vars(error).items()})
        error = error.__cause__ or error.__context__  # type: ignore[assignment] # the loop ends with None


class ScrubbingFormatter(logging.Formatter):
    """Formats log records without secrets, control characters as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with a traceback if there is one."""
        return printable(scrubbed(super().format(record)))


def _replaced(text: str, where: str | None, put: Callable[[str], str]) -> str:
    def one(found: re.Match[str]) -> str:
        value = _value_of(found, where)
        if len(value) >= _SHORTEST:
            _resolved.update((value, put(value)))
        return put(value)

    return REFERENCE.sub(one, text)


def _value_of(found: re.Match[str], where: str | None) -> str:
    if found["name"] is not None:
        value = os.environ.get(found["name"])
        if value is None:
            raise SecretNotFoundError(
                f"{found[0]} names the environment variable {found['name']}, which is not set",
                where=where,
                remedy=f"export {found['name']} where the application runs (in a cluster: for its workers)",
            )
        return value
    try:
        return Path(found["file"]).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise SecretNotFoundError(
            f"the file that {found[0]} names cannot be read",
            where=where,
            got=getattr(error, "strerror", None) or "it is not text in UTF-8",
            remedy="write it where the application runs (in a cluster: on every worker)",
        ) from error


def _scrubbed_any(value: Any) -> Any:
    if isinstance(value, str):
        return scrubbed(value)
    return tuple(map(_scrubbed_any, value)) if type(value) is tuple else value


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
