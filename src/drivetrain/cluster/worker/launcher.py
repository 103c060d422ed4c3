"""Starts the processes of a worker on this machine.

Problem: starting a process takes a download, files and a fork, each of which may fail, take long, or be
overtaken by a request to stop.

Design: a launch is a coroutine outside the actor's handlers: code into the cache, the process's directory
with its launch file, the durable record, the start, the record with the process id. Blocking steps run in
threads; only the start itself runs in the thread of the loop, see `parent`. An executor may already run as a
spare, see `spare_executors`: then it gets its launch file, and its directory is the spare's. All files are
below the worker's directory:

    code/       unpacked archives, see `code.cache`; its lock is the worker's
    launches/   records, see `launch_records`
    work/<launch or spare id>/  the process's current directory, removed after its end
    logs/<application>/         see `worker_logs`

Invariants:
1. A process is started only after its record is durable, and its record is removed only after its end.
2. After `stop`, a launch that has not started its process never does.
3. Names from messages become parts of paths only when they are plain file names.

Called by the `Worker` actor. Stopping a launch twice does no harm.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from drivetrain.actor import ActorSystem
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.code_transfer import NO_CODE, fetch
from drivetrain.cluster.connection import SECRET_VARIABLE
from drivetrain.cluster.launch_file import LAUNCH_FILE, SPARE, LaunchFile
from drivetrain.cluster.messages.launching import Launch, LogChunk, ProcessKind
from drivetrain.cluster.worker import orphans
from drivetrain.cluster.worker.key_locks import KeyLocks
from drivetrain.cluster.worker.launch_records import LaunchRecord, LaunchRecords, record_of
from drivetrain.cluster.worker.launch_requests import (
    LaunchEnvironment,
    LaunchError,
    OnEnd,
    launch_file,
    process_name,
    system_of,
)
from drivetrain.cluster.worker.launched_process import LaunchedProcess
from drivetrain.cluster.worker.left_states import empty_left_states
from drivetrain.cluster.worker.spare_executors import Spare, SpareExecutors
from drivetrain.cluster.worker.worker_logs import WorkerLogs, is_plain_name
from drivetrain.cluster.worker.worker_settings import STATES, WorkerSettings, config_for
from drivetrain.code.cache import CodeCache
from drivetrain.errors import ConfigError, DrivetrainError
from drivetrain.private_files import make_private_directory

COMMANDS: Final[Mapping[ProcessKind, tuple[str, ...]]] = {
    ProcessKind.APP_MASTER: ("-m", "drivetrain.cluster.app_master"),
    ProcessKind.EXECUTOR: ("-m", "drivetrain.cluster.executor"),
}
"""Arguments of the Python interpreter by kind of process; the launch file's path follows."""

_LOG_END_BYTES: Final = 8 * 1024
_CLOSE_GRACE_MS: Final = 3_000
_CLOSE_S: Final = 6.0
_NO_PROCESS: Final = "no-process"
_BEGINNING_S: Final = 1.0
"""How long after the worker the first spare executor is started."""


class _Running:
    """A launch under way or a running process; `process` is None until it is started."""

    def __init__(self, launch: Launch, name: str, work: Path) -> None:
        self.launch: Final = launch
        self.name: Final = name
        self.work = work
        self.process: LaunchedProcess | None = None
        self.is_stopped = False
        self.recorded: Final = asyncio.Event()
        self.ended: Final = asyncio.Event()


class ProcessLauncher:
    """The processes of one worker; `commands` are the interpreter's arguments for each kind."""

    def __init__(
        self,
        system: ActorSystem,
        settings: WorkerSettings,
        keyring: Keyring | None,
        commands: Mapping[ProcessKind, Sequence[str]] = COMMANDS,
    ) -> None:
        self._system: Final = system
        self._settings: Final = settings
        self._keyring: Final = keyring
        self._commands: Final = commands
        self._running: Final[dict[str, _Running]] = {}
        self._finishing: Final[set[asyncio.Task[None]]] = set()
        self._fetching: Final = KeyLocks()
        directory = settings.directory
        self._work: Final = directory / "work"
        self._logs: Final = WorkerLogs(directory / "logs", settings.log_size_bytes, settings.log_count)
        self._code: CodeCache | None = None
        self._records: LaunchRecords | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._spares: SpareExecutors | None = None
        self._on_end: OnEnd | None = None
        self._worker_id = ""
        self._cleaned: list[str] = []

    async def prepare(self) -> None:
        """Lock the worker's directory and clean it up; raises UnavailableError, ConfigError."""
        try:
            self._cleaned = await self._blocking(self._open)
        except OSError as error:
            raise ConfigError(
                "the worker cannot use its directory",
                where=str(self._settings.directory),
                got=str(error),
                remedy="make it writable, or choose another with --directory (worker.directory)",
            ) from error

    async def open(self, worker_id: str, on_end: OnEnd) -> list[str]:
        """Start the guard; `prepare` must have been called."""
        self._worker_id, self._on_end = worker_id, on_end
        # Started from the loop's thread, like all processes.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", orphans.__file__, f"{worker_id}/"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert self._records is not None
        self._spares = SpareExecutors(
            self._system,
            self._settings.spare_executors,
            self._work,
            self._records,
            lambda id: f"{worker_id}/{id}",
            self._start_spare,
        )
        self._spares.want(config_for(self._settings.config, {}), slots=0, delay_s=_BEGINNING_S)
        return list(self._cleaned)

    def _open(self) -> list[str]:
        make_private_directory(self._settings.directory, "the worker's directory")
        self._code = CodeCache(self._settings.directory / "code")
        self._records = LaunchRecords(self._settings.directory / "launches")
        cleaned = self._records.clean_up()
        make_private_directory(self._work, "the directories of processes")
        for left in self._work.iterdir():
            if not self._records.has(left.name):  # a launch that failed before its record was written
                shutil.rmtree(left, ignore_errors=True)
        return cleaned

    async def launch(self, launch: Launch, surroundings: LaunchEnvironment) -> int:
        """See `Launcher.launch`."""
        name = process_name(launch)
        if not all(map(is_plain_name, (launch.launch_id, launch.app_id, name))):
            raise LaunchError("a name in the launch cannot be the name of a file", failure_code=_NO_PROCESS)
        running = self._running[launch.launch_id] = _Running(launch, name, self._work / launch.launch_id)
        assert self._code is not None
        self._code.use(launch.spec.code, launch.launch_id)
        try:
            code = await self._wait_for_code(launch, surroundings)
            self._require_wanted(running)
            await self._start(running, code, surroundings)
        except BaseException as error:
            await self._forget(running)
            if isinstance(error, OSError):
                raise LaunchError(
                    f"the process cannot be started: {error}",
                    failure_code="no-directory" if error.filename else _NO_PROCESS,
                    remedy=f"free space and check permissions below {self._settings.directory}",
                ) from error
            raise
        assert running.process is not None
        return running.process.pid

    async def _wait_for_code(self, launch: Launch, surroundings: LaunchEnvironment) -> Path:
        assert self._code is not None
        sha256 = launch.spec.code
        async with self._fetching.hold(sha256):
            path = self._code.path(sha256)
            if path is None:
                try:
                    await fetch(
                        surroundings.search,
                        sha256,
                        self._code,
                        self._blocking,
                        timeout_ms=self._settings.code_timeout_ms,
                    )
                    path = await self._blocking(self._code.install, sha256)
                except DrivetrainError as error:
                    raise LaunchError(error.what, failure_code=NO_CODE, remedy=error.remedy) from error
        return path

    async def _start(self, running: _Running, code: Path, surroundings: LaunchEnvironment) -> None:
        launch, settings = running.launch, self._settings
        config = config_for(settings.config, launch.spec.config)
        spare = self._spare_for(launch, config)
        tag = f"{self._worker_id}/{launch.launch_id}" if spare is None else spare.tag
        running.work = work = running.work if spare is None else spare.work
        file = launch_file(launch, surroundings, config, code, work)
        begun = None if spare is None else spare.process
        try:
            record = record_of(launch.launch_id, tag, work, begun)
            output = await self._blocking(self._prepare, file, record, running.name)
            self._require_wanted(running)
        except BaseException:
            if begun is not None:
                begun.kill()  # it is no spare any more
            raise
        loop = self._system.loop

        def ended(status: int) -> None:
            loop.call_soon_threadsafe(self._process_ended, running, status)

        if spare is None:
            running.process = LaunchedProcess(
                [sys.executable, *self._commands[launch.kind], str(work / LAUNCH_FILE)],
                work,
                self._environ(self._secret_for(launch)),
                tag,
                output,
                ended,
            )
        else:
            running.process = spare.hand_over(work / LAUNCH_FILE, self._secret_for(launch), output, ended)
        process, records = running.process, self._records
        assert records is not None
        try:
            await self._blocking(records.put, record_of(launch.launch_id, tag, work, process))
            if spare is not None:
                await self._blocking(records.remove, spare.id)
        except OSError:
            self._running.pop(launch.launch_id)  # so that its end is not reported: the launch failed
            process.kill()
            raise
        finally:
            running.recorded.set()

    def _spare_for(self, launch: Launch, config: Mapping[str, str]) -> Spare | None:
        """A spare executor that can serve this launch, if there is one."""
        if self._spares is None or launch.kind is not ProcessKind.EXECUTOR or launch.spec.app_master:
            return None
        return self._spares.take(config, launch.slots)

    def _start_spare(self, spare: Spare, file: Path, on_end: Callable[[int], None]) -> LaunchedProcess:
        loop = self._system.loop

        def ended(status: int) -> None:
            loop.call_soon_threadsafe(on_end, status)

        return LaunchedProcess(
            [sys.executable, *self._commands[ProcessKind.EXECUTOR], SPARE, str(file)],
            spare.work,
            self._environ(None),
            spare.tag,
            spare.output,
            ended,
        )

    def _prepare(self, file: LaunchFile, record: LaunchRecord, name: str) -> Any:
        work = Path(file.work_directory)
        work.mkdir(parents=True, mode=0o700, exist_ok=True)
        file.save(work / LAUNCH_FILE)
        assert self._records is not None
        self._records.put(record)
        return self._logs.writer(file.app_id, name)

    def _environ(self, secret: str | None) -> dict[str, str]:
        # The launch file has the configuration, including what came from the worker's environment.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DRIVETRAIN_")}
        if secret is not None:
            environ[SECRET_VARIABLE] = secret
        environ["PYTHONUNBUFFERED"] = "1"
        return environ

    def _secret_for(self, launch: Launch) -> str | None:
        """The process's own keys, not the worker's, as it runs users' code."""
        return None if self._keyring is None else self._keyring.text_for(system_of(launch))

    def _require_wanted(self, running: _Running) -> None:
        if running.is_stopped:
            raise LaunchError("the launch was stopped before its process was", failure_code=_NO_PROCESS)

    async def stop(self, launch_id: str, grace_ms: int) -> None:
        """See `Launcher.stop`."""
        running = self._running.get(launch_id)
        if running is None:
            return
        running.is_stopped = True
        process = running.process
        if process is None:
            return
        if grace_ms <= 0:
            process.kill()
            return
        process.ask_to_end()
        self._system.loop.call_later(grace_ms / 1000, self._kill_if_running, running)

    def _kill_if_running(self, running: _Running) -> None:
        if running.process is not None and not running.ended.is_set():
            running.process.kill()

    def _process_ended(self, running: _Running, status: int) -> None:
        task = self._system.loop.create_task(self._finish(running, status))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def _finish(self, running: _Running, status: int) -> None:
        launch = running.launch
        await running.recorded.wait()  # otherwise the record would be written after its removal
        piece = await self._blocking(self._logs.read, launch.app_id, running.name, None, _LOG_END_BYTES)
        was_launched = self._running.get(launch.launch_id) is running
        await self._forget(running)
        if was_launched and self._on_end is not None:
            self._on_end(launch.launch_id, status, piece.data.decode("utf-8", "replace"))

    async def _forget(self, running: _Running) -> None:
        """Remove the files of a launch without processes."""
        launch_id = running.launch.launch_id
        if self._running.get(launch_id) is running:
            del self._running[launch_id]
        assert self._code is not None
        self._code.release(running.launch.spec.code, launch_id, self._system.loop.time())
        await self._blocking(self._remove, running)
        running.ended.set()

    def _remove(self, running: _Running) -> None:
        shutil.rmtree(running.work, ignore_errors=True)
        assert self._records is not None
        self._records.remove(running.launch.launch_id)

    async def read_log(
        self, app_id: str, process: str | None, offset: int | None, max_bytes: int
    ) -> LogChunk | None:
        """See `Launcher.read_log`; `process` may also be a launch id."""
        chunk: LogChunk | None = await self._blocking(self._read_log, app_id, process, offset, max_bytes)
        return chunk

    def _read_log(
        self, app_id: str, process: str | None, offset: int | None, max_bytes: int
    ) -> LogChunk | None:
        processes = self._logs.processes(app_id)
        names = [name for name in processes if process in (None, name) or name.endswith(f"-{process}")]
        if not names:
            return None
        piece = self._logs.read(app_id, names[-1], offset, max_bytes)
        return LogChunk(names[-1], piece.data, piece.next_offset, tuple(sorted(processes)))

    async def tidy(self) -> None:
        """See `Launcher.tidy`."""
        assert self._code is not None
        now_s = self._system.loop.time()
        for sha256 in self._code.unused(now_s, self._settings.code_retention_ms / 1000):
            async with self._fetching.hold(sha256):
                await self._blocking(self._code.remove, sha256)
        states, retention_s = self._settings.directory / STATES, self._settings.state_retention_ms / 1000
        await self._blocking(empty_left_states, states, retention_s)
        alive = frozenset((one.launch.app_id, one.name) for one in self._running.values())
        await self._blocking(self._logs.remove_old, self._settings.log_retention_ms / 1000, alive)

    async def close(self) -> None:
        """End every process and the guard."""
        waits = [asyncio.ensure_future(running.ended.wait()) for running in self._running.values()]
        for launch_id in list(self._running):
            await self.stop(launch_id, _CLOSE_GRACE_MS)
        if self._spares is not None:
            await self._spares.close()
        if waits:
            await asyncio.wait(waits, timeout=_CLOSE_S)
            for wait in waits:
                wait.cancel()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()  # the guard ends remaining processes, and itself
            await self._blocking(self._guard.wait)
        if self._code is not None:
            self._code.close()

    def _blocking(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return self._system.run_blocking(lambda: function(*args))
