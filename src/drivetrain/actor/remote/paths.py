"""The text of paths between two systems: short where both ends know the rest.

Design: a path of the system at one end of the connection is written without its address ("/user/a#7");
any other is written whole. Both directions cache recent paths, because few actors send most of the
messages.

Invariant: `read(write(p)) == p` when the writer's home is the reader's.

Called by `Association`: the home of targets is the receiver, that of senders the sender.
"""

from __future__ import annotations

from typing import Final

from drivetrain.actor.path import ANY_UID, ActorPath, Address

_MOST_KEPT: Final = 4096
_LONGEST_KEPT: Final = 512


class PathWriter:
    """Writes paths for a peer; those at `home` are written without their address."""

    def __init__(self, home: Address) -> None:
        self._home: Final = home
        self._texts: Final[dict[ActorPath, str]] = {}

    def write(self, path: ActorPath) -> str:
        """The text of the path."""
        text = self._texts.get(path)
        if text is None:
            if path.address != self._home:
                text = str(path)
            else:
                text = f"{path.local}#{path.uid}" if path.uid != ANY_UID else path.local
            if len(self._texts) >= _MOST_KEPT:
                self._texts.clear()
            self._texts[path] = text
        return text


class PathReader:
    """Reads paths from a peer; those without an address are at `home`."""

    def __init__(self, home: Address) -> None:
        self._prefix: Final = str(home)
        self._paths: Final[dict[str, ActorPath]] = {}

    def read(self, text: str) -> ActorPath:
        """The path; raises `InvalidPathError`."""
        path = self._paths.get(text)
        if path is None:
            path = ActorPath.parse(self._prefix + text if text.startswith("/") else text)
            if len(self._paths) >= _MOST_KEPT:
                self._paths.clear()
            if len(text) <= _LONGEST_KEPT:
                self._paths[text] = path
        return path
