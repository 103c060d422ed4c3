"""The addresses of a console: where it is, and the one that signs a browser in.

Called by `console.server` and by the commands that start a console.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drivetrain.config import Config
from drivetrain.config.catalog import console as keys

TOKEN: Final = "token"  # noqa: S105 - the name of a parameter


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """Where a console listens, and the token to sign in with (None for one that other machines reach)."""

    address: str
    token: str | None

    @property
    def entry(self) -> str:
        """The address that signs a browser in, if there is a token."""
        return self.address if self.token is None else f"{self.address}?{TOKEN}={self.token}"

    @property
    def as_data(self) -> dict[str, str | None]:
        """What commands print with `--json`."""
        return {"address": self.address, "token": self.token, "entry": self.entry}


def prefix_of(config: Config) -> str:
    """The path under which the console is: empty, or without a slash at its end."""
    return config[keys.PREFIX].rstrip("/")


def address_of(config: Config, host: str, port: int) -> str:
    """The address of a console that listens at `host` and `port`.

    >>> from drivetrain.config import Config
    >>> address_of(Config.load(None, {}, {"console.prefix": "/wheel/"}), "::1", 7080)
    'http://[::1]:7080/wheel/'
    """
    scheme = "https" if config[keys.TLS_CERTIFICATE] else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{prefix_of(config)}/"
