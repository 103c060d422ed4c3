"""Application masters and executors of users' own classes, as real processes; files that cannot be loaded."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest
from custom_cluster import Cluster

from drivetrain.cluster.app_master.custom.custom_file import declared_app_master, spelled
from drivetrain.cluster.messages.applications import ApplicationSpec, ApplicationState
from drivetrain.cluster.messages.following import JobStatus

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL_MIB = 80


def spec_of(file: Path, directory: Path, **settings: str) -> ApplicationSpec:
    cls = declared_app_master(file)
    assert cls is not None
    return ApplicationSpec(
        "custom",
        "0" * 64,
        file.name,
        settings=settings,
        directory=str(directory),
        app_master=spelled(file, cls),
    )


async def until_over(cluster: Cluster) -> JobStatus:
    try:
        await cluster.start()
        return await cluster.wait_over()
    finally:
        await cluster.close()


@pytest.mark.nightly("the unit tests of custom applications; other tests of this module run them")
def test_the_shell_runs_a_command_on_every_worker(tmp_path: Path) -> None:
    spec = spec_of(EXAMPLES / "distributed_shell.py", tmp_path, command="echo $((40 + 2)); pwd")
    result = asyncio.run(until_over(Cluster(spec, EXAMPLES, tmp_path, ["one", "two", "three"])))
    expected = [f"{name}: {line}" for name in ("one", "three", "two") for line in ("42", str(tmp_path))]
    assert result.printed.splitlines() == expected
    assert result.error is None


@pytest.mark.nightly("the command that succeeds, above, and a file that raises, below")
def test_a_command_that_fails_fails_the_application_with_its_output(tmp_path: Path) -> None:
    spec = spec_of(EXAMPLES / "distributed_shell.py", tmp_path, command="echo no such luck; exit 3")
    result = asyncio.run(until_over(Cluster(spec, EXAMPLES, tmp_path, ["one"])))
    assert result.error is not None
    assert "status 3: no such luck" in result.error.what
    assert result.error.where == "one"


def holders_of(cluster: Cluster, path: Path) -> list[str]:
    """The living processes that have the file open, by launch id."""
    found = []
    for launch_id, process in cluster.processes.items():
        with suppress(OSError):
            links = [os.readlink(fd) for fd in Path(f"/proc/{process.pid}/fd").iterdir()]
            if str(path) in links and process.poll() is None:
                found.append(launch_id)
    return found


async def wait_for_reader(cluster: Cluster, path: Path) -> str:
    while not (holders := holders_of(cluster, path)):
        await asyncio.sleep(0.02)
    return holders[0]


async def wait_for_pipe(path: Path) -> int:
    """Open a named pipe for writing once somebody reads it."""
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            await asyncio.sleep(0.02)


def test_a_reader_that_is_killed_returns_its_file_and_every_file_counts_once(tmp_path: Path) -> None:
    inputs, work = tmp_path / "inputs", tmp_path / "work"
    inputs.mkdir()
    work.mkdir()
    for number in range(10):
        (inputs / f"{number}.txt").write_text("ERROR here\nfine\n" * 50)
    pipe = inputs / "pipe"  # whoever reads it waits for us, and holds it when it is killed
    os.mkfifo(pipe)
    file = EXAMPLES / "distributed_grep.py"
    cluster = Cluster(
        spec_of(file, tmp_path, input=str(inputs / "*"), pattern="ERROR", readers="2"),
        EXAMPLES,
        work,
        ["one", "two"],
    )

    async def run() -> JobStatus:
        try:
            await cluster.start()
            async with asyncio.timeout(60):
                writer = await wait_for_pipe(pipe)
                killed = await wait_for_reader(cluster, pipe)
                cluster.processes[killed].kill()
                cluster.processes[killed].wait()
                assert await wait_for_reader(cluster, pipe) != killed
                os.write(writer, b"ERROR of the pipe\n")
                os.close(writer)
            return await cluster.wait_over()
        finally:
            await cluster.close()

    result = asyncio.run(run())
    assert result.accumulators == {"matches": 10 * 50 + 1}, cluster.logs()
    assert [error.code for error in result.errors] == ["executor-lost"]


def test_a_file_that_raises_on_import_fails_with_the_users_traceback_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    code, work = tmp_path / "code", tmp_path / "work"
    code.mkdir()
    work.mkdir()
    (code / "broken.py").write_text("def helper():\n    return 1 / 0\n\n\nhelper()\n")
    for app_master in (None, "broken:Mine"):
        directory = work / str(app_master).replace(":", "-")
        directory.mkdir()
        spec = ApplicationSpec("broken", "0" * 64, "broken.py", directory=str(code), app_master=app_master)
        cluster = Cluster(spec, code, directory, ["one"])
        result = asyncio.run(until_over(cluster))
        assert cluster.final is not None
        assert cluster.final.state is ApplicationState.FAILED
        assert result.error is not None
        assert "ZeroDivisionError" in (result.error.user_traceback or "")
        assert "in helper" in (result.error.user_traceback or "")
        assert list(cluster.processes) == ["am"]


def test_the_application_master_of_a_stream_stays_small(tmp_path: Path) -> None:
    spec = ApplicationSpec(
        "wc", "0" * 64, "wordcount.py", settings={"input": "in", "output": "out"}, directory=str(tmp_path)
    )
    cluster = Cluster(spec, EXAMPLES, tmp_path, ["one"])

    async def run() -> float:
        try:
            await cluster.start()
            async with asyncio.timeout(40):
                # An executor is asked for once the file is loaded and planned.
                while len(cluster.processes) < 2:
                    assert cluster.processes["am"].poll() is None, cluster.logs()
                    await asyncio.sleep(0.05)
            return cluster.memory_mib("am")
        finally:
            await cluster.close()

    used_mib = asyncio.run(run())
    assert used_mib < SMALL_MIB
