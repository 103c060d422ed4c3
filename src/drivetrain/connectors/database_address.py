"""The secrets in the address of a database: put in when connecting, left out of everything else.

The problem: an address has references in place of passwords. A client needs the passwords, and no error may
show them.

The design: an address is parsed with placeholders for its references, so that no character of a password can
change what the parts are; then each part gets its secrets.

Called by `postgresql`, `mysql_connection` and `redis_connection`.
"""

from __future__ import annotations

from collections.abc import Mapping

from drivetrain.config.references import SecretNotFoundError, resolved
from drivetrain.errors import OutputError


def with_secrets(text: str, references: Mapping[str, str], where: str) -> str:
    """A part of an address with its placeholders replaced by secrets; raises `OutputError`."""
    for placeholder, reference in references.items():
        if placeholder in text:
            text = text.replace(placeholder, secret_of(reference, where))
    return text


def secret_of(reference: str, where: str) -> str:
    """The value of a reference in this process; raises `OutputError` if there is none."""
    try:
        return resolved(reference)
    except SecretNotFoundError as error:
        raise OutputError(
            f"a reference in the address of the database cannot be resolved: {error.what}",
            where=where,
            got=error.got,
            remedy=error.remedy,
        ) from error
