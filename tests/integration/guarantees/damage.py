"""Damages files of channels while an application runs, where its subscriber has not read them yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.job.run_progress import FragmentProgressed, NoticeGiven, ProgressEvent
from drivetrain.runtime.channel.store import ChannelStore

Harm = Callable[[ChannelStore, int], bool]
"""Damages entry `number` of a channel; False if there is nothing to damage."""


def channel_of(state: Path, channel: str) -> ChannelStore:
    """The store of a channel of the one application in a state directory."""
    (home,) = [d for d in state.iterdir() if d.is_dir()]
    return ChannelStore(str(home / "channels" / channel))


def harm_segment(how: Literal["deleted", "cut", "flipped"]) -> Harm:
    """Damages the first segment of an entry."""

    def harm(store: ChannelStore, number: int) -> bool:
        segments = store.read_entry(number).segments
        if not segments:
            return False
        _harm(Path(store.uri) / segments[0].path, how)
        return True

    return harm


def harm_entry(how: Literal["deleted", "cut"]) -> Harm:
    """Damages an entry itself."""

    def harm(store: ChannelStore, number: int) -> bool:
        _harm(Path(store.uri) / "log" / f"{number:020d}.json", how)
        return True

    return harm


def _harm(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    path.unlink()  # a copy that is linked elsewhere stays as it is
    if how == "deleted":
        return
    if how == "cut":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


class Damager:
    """A listener that damages unread entries, one after the other; `harms` are keyed by channel id."""

    def __init__(self, state: Path, harms: Mapping[str, list[Harm]], ahead: int = 2) -> None:
        self._state = state
        self._harms = {id: list(harms) for id, harms in harms.items()}
        self._ahead = ahead
        self._next: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.notices: list[str] = []
        self.channels: dict[str, tuple[ChannelProgress, ...]] = {}
        """The last reported progress of each fragment's channels."""

    def on_event(self, event: ProgressEvent) -> None:
        """Damage entries that the subscribers have not reached."""
        if isinstance(event, NoticeGiven):
            self.notices.append(event.text)
        if isinstance(event, FragmentProgressed):
            self.channels[event.fragment] = event.channels
        for id, harms in self._harms.items():
            if harms:
                self._damage(id, harms)

    def _damage(self, id: str, harms: list[Harm]) -> None:
        store = channel_of(self._state, id)
        numbers = store.numbers()
        read = max(store.positions().values(), default=0)
        number = max(read + self._ahead, self._next[id])
        if number in numbers and number + 1 in numbers and harms[0](store, number):
            harms.pop(0)
            self.done[id] += 1
            self._next[id] = number + 2

    def stop_requested(self) -> bool:
        """Whether to stop: never."""
        return False
