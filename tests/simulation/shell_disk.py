"""The disk of a simulated process: it may die before every change to a file, and its sinks publish there."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from drivetrain.runtime.channel.files import ChannelFiles


class Killed(BaseException):
    """The process is killed here."""


_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate"}
_watch: Callable[[str], None] | None = None
"""Called with the path before a file is changed; None: there is no watcher."""


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _watch is None:
        return
    if event in _CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & _WRITES):
        _watch(str(args[0]))


class _Auditing:
    """Python calls an audit hook before every change to files; a hook cannot be removed."""

    is_on = False


@contextlib.contextmanager
def watching(watch: Callable[[str], None]) -> Iterator[None]:
    """Have `watch` called before every change to a file, also by Arrow; it may raise."""
    global _watch
    if not _Auditing.is_on:
        sys.addaudithook(_audit)
        _Auditing.is_on = True
    with pytest.MonkeyPatch.context() as patched:
        for name in ("delete", "_put"):
            real = getattr(ChannelFiles, name)

            def changed(self: Any, path: str, *given: Any, real: Any = real, **more: Any) -> Any:
                watch(self._full(path))
                return real(self, path, *given, **more)

            patched.setattr(ChannelFiles, name, changed)
        _watch = watch
        try:
            yield
        finally:
            _watch = None


class Target:
    """The target in which the sinks publish together: one file, replaced in one step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def shown(self) -> dict[str, tuple[int, list[int]]]:
        """By sink, the last batch that is shown, and all rows."""
        with contextlib.suppress(FileNotFoundError):
            told = json.loads((self.directory / "shown.json").read_text())
            return {id: (last, rows) for id, (last, rows) in told.items()}
        return {}

    def show(self, shown: Mapping[str, tuple[int, list[int]]]) -> None:
        aside = self.directory / "shown.tmp"
        aside.write_text(json.dumps(shown))
        os.replace(aside, self.directory / "shown.json")


class StandInSink:
    """A transactional sink, whose frames are lists."""

    guarantee = "exactly once"
    group = "the target"

    def __init__(self, id: str, target: Target) -> None:
        self.id = id
        self.target = target
        self.waiting = target.directory / id
        self.waiting.mkdir(exist_ok=True)

    def validate(self) -> None:
        """Does nothing: it can always be written."""

    check_fresh = fresh = validate

    def write(self, df: list[int], batch_id: int) -> int:
        shown = self.target.shown()
        last, rows = shown.get(self.id, (-1, []))
        if batch_id <= last:
            return 0
        self.target.show({**shown, self.id: (batch_id, rows + df)})
        return len(df)

    def prepare(self, df: list[int], batch_id: int) -> int:
        if batch_id <= self.target.shown().get(self.id, (-1, []))[0]:
            return 0
        aside = self.waiting / "aside.tmp"
        aside.write_text(json.dumps(df))
        os.replace(aside, self.waiting / str(batch_id))
        return len(df)

    def prepared(self) -> list[int]:
        return sorted(int(path.name) for path in self.waiting.iterdir() if path.name.isdigit())

    def abort(self, batch_id: int) -> None:
        (self.waiting / str(batch_id)).unlink()

    def publish(self, _txid: int, last: Mapping[str, int], all: Mapping[str, StandInSink]) -> dict[str, int]:
        shown, told = self.target.shown(), {}
        for id, sink in all.items():
            before, rows = shown.get(id, (-1, []))
            new = [b for b in sink.prepared() if before < b <= last.get(id, -1)]
            added = [row for b in new for row in json.loads((sink.waiting / str(b)).read_text())]
            shown[id], told[id] = (max(before, last.get(id, -1)), rows + added), len(added)
        self.target.show(shown)
        for id, sink in all.items():
            for batch in [b for b in sink.prepared() if b <= shown[id][0]]:
                sink.abort(batch)
        return told
