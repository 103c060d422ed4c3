"""A disk that loses unsynced writes when its machine crashes, with the same `Disk` protocol as a real one.

Problem: on a real machine a lost write occurs once in a thousand power cuts, and never in a test.

Design: a file remembers what is durable and the unsynced writes since. A crash keeps, by a seeded choice, a
prefix of those writes, the last one perhaps incomplete. Each operation takes a moment before and a moment
after its effect, so a crash finds it done, not done, or done without its caller knowing.

Invariants:
1. The invariants of `drivetrain.actor.disk`.
2. Content that was synced is never lost or changed by a crash.
3. Same seed, same operations and crashes: same content.

Called by code in a simulated node, through `Node.disk`; `crash` by `Node`. Source: the storage faults
of FoundationDB's and TigerBeetle's simulators; "All File Systems Are Not Created Equal" (Pillai et al.).
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass, field
from random import Random
from typing import Final

from drivetrain.actor.disk import require_file_name
from drivetrain.errors import DiskFullError
from drivetrain.simulator.faults import DiskFaults
from drivetrain.simulator.loop import SimulatedLoop
from drivetrain.simulator.trace import Trace


@dataclass(frozen=True, slots=True)
class _Unsynced:
    """One write since the last sync; `is_append` is whether it kept the previous content."""

    data: bytes
    is_append: bool

    def on(self, content: bytes) -> bytes:
        return content + self.data if self.is_append else self.data


@dataclass(slots=True)
class _File:
    """A file; `durable` is None while a crash may still make it disappear."""

    durable: bytes | None = None
    unsynced: list[_Unsynced] = field(default_factory=list)
    content: bytes = b""

    def add(self, write: _Unsynced) -> None:
        self.content = write.on(self.content)
        self.unsynced.append(write)

    def sync(self) -> None:
        self.durable = self.content
        self.unsynced.clear()


class SimulatedDisk:
    """The disk of the node `name`; `set_faults` and `capacity_bytes` make it worse."""

    def __init__(self, loop: SimulatedLoop, random: Random, trace: Trace, name: str) -> None:
        self._loop: Final = loop
        self._random: Final = random
        self._trace: Final = trace
        self._name: Final = name
        self._faults = DiskFaults()
        self._files: dict[str, _File] = {}
        self.capacity_bytes: int | None = None

    # ---- Disk

    async def read(self, name: str) -> bytes | None:
        """Read a file; None when there is none."""
        require_file_name(name)
        await self._before(f"read {name}")
        file = self._files.get(name)
        return None if file is None else file.content

    async def write(self, name: str, data: bytes) -> None:
        """Replace the file's content by `data`, unsynced."""
        await self._store(name, _Unsynced(bytes(data), is_append=False), "write")

    async def append(self, name: str, data: bytes) -> None:
        """Add `data` to the file, unsynced."""
        await self._store(name, _Unsynced(bytes(data), is_append=True), "append")

    async def sync(self, name: str) -> None:
        """Make the file durable."""
        await self._before(f"sync {name}")
        self._file(name).sync()
        await self._after()

    async def replace(self, source: str, target: str) -> None:
        """Rename; durable, but the content only as far as it was synced."""
        require_file_name(target)
        await self._before(f"replace {target} by {source}")
        file = self._file(source)
        del self._files[source]
        if file.durable is None:
            file.durable = b""
        self._files[target] = file
        await self._after()

    async def delete(self, name: str) -> None:
        """Remove a file; durable."""
        require_file_name(name)
        await self._before(f"delete {name}")
        self._files.pop(name, None)
        await self._after()

    async def names(self) -> list[str]:
        """The names of all files, sorted."""
        await self._before("names")
        return sorted(self._files)

    # ---- for the scenario

    def set_faults(self, faults: DiskFaults) -> None:
        """Apply these faults from now on."""
        self._faults = faults

    def content(self, name: str) -> bytes | None:
        """The content that a process would read now; None when there is no such file."""
        file = self._files.get(name)
        return None if file is None else file.content

    def damage(self, name: str, content: bytes | None) -> None:
        """Change or delete the file's durable content, as a failing disk does."""
        self._record(f"damage to {name}")
        if content is None:
            self._files.pop(name, None)
        else:
            self._files[name] = _File(content, [], content)

    def crash(self) -> None:
        """Lose unsynced data, as far as the seed decides; `Node` calls this."""
        for name in sorted(self._files):
            file = self._files[name]
            if file.durable is not None and not file.unsynced:
                continue
            kept = self._random.randint(0, len(file.unsynced))
            is_torn = kept > 0 and self._random.random() < self._faults.torn_write
            torn = ", the last torn" if is_torn else ""
            self._record(f"keeps {kept} of {len(file.unsynced)} unsynced writes of {name}{torn}")
            if kept == 0 and file.durable is None:
                del self._files[name]
                continue
            content = file.durable or b""
            for at, write in enumerate(file.unsynced[:kept]):
                if is_torn and at == kept - 1:
                    write = _Unsynced(write.data[: self._random.randint(0, len(write.data))], write.is_append)
                content = write.on(content)
            self._files[name] = _File(content, [], content)

    # ---- internals

    async def _store(self, name: str, write: _Unsynced, what: str) -> None:
        require_file_name(name)
        await self._before(f"{what} {name} {len(write.data)} B")
        file = self._files.get(name) or _File()
        grown = len(write.on(file.content)) - len(file.content)
        used = sum(len(other.content) for other in self._files.values())
        if self.capacity_bytes is not None and used + grown > self.capacity_bytes:
            raise DiskFullError("no space is left on the disk", where=self._name, remedy="free some space")
        file.add(write)
        self._files[name] = file
        await self._after()

    def _file(self, name: str) -> _File:
        require_file_name(name)
        file = self._files.get(name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return file

    async def _before(self, what: str) -> None:
        await asyncio.sleep(self._faults.delay_s(self._random) / 2)
        if self._faults.failure and self._random.random() < self._faults.failure:
            self._record(f"fails: {what}")
            raise OSError(errno.EIO, "input/output error (simulated)", what)
        self._record(what)

    async def _after(self) -> None:
        await asyncio.sleep(self._faults.delay_s(self._random) / 2)

    def _record(self, what: str) -> None:
        self._trace.write(self._loop.time(), self._name, f"disk: {what}")
