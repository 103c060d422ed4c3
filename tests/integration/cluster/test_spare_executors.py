"""Executors that a worker has started ahead: they serve launches like others, and none is left behind."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from worker_world import World, kill

from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.launching import Launched, ProcessExited, ProcessKind
from whole_cluster import WholeCluster, wait_for, whole_cluster

PROGRAM = """
import msgspec, os, queue, sys, time
from pathlib import Path
from drivetrain.cluster.launch_file import Handover, LaunchFile, SpareFile
from drivetrain.cluster.parent import tie_to_parent, wait_for_launch_file

if sys.argv[1] == "--spare":
    lines = queue.Queue()
    tie_to_parent(lines.put)
    file = SpareFile.load(Path(sys.argv[2]))
    print("waits with", file.slots, "slots", flush=True)
    Path("waits").touch()
    launch = LaunchFile.load(Path(msgspec.json.decode(lines.get(), type=Handover).launch_file))
else:
    launch = wait_for_launch_file()
print("begun", launch.app_id, os.getcwd() == launch.work_directory, flush=True)
time.sleep(1000)
"""
"""An executor without Spark."""


def run(tmp_path: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World(tmp_path)
        await world.open()
        (tmp_path / "executor.py").write_text(PROGRAM)
        world.start_worker(str(tmp_path / "executor.py"), worker__spare_executors=1)
        try:
            await world.registered()
            await scenario(world)
        finally:
            await world.close()

    asyncio.run(main())


def spares(world: World) -> list[int]:
    """The spare executors that wait for a launch, or have taken one."""
    return [process.pid for process in world.left() if "--spare" in process.cmdline() and waits(process)]


def waits(process: psutil.Process) -> bool:
    return Path(process.cwd(), "waits").exists()


async def one_spare(world: World, *, other_than: int = 0) -> int:
    await world.until(lambda: set(spares(world)) - {other_than} != set(), "a spare executor waits")
    (found,) = set(spares(world)) - {other_than}
    return found


def records(tmp_path: Path) -> list[str]:
    return sorted(path.stem for path in (tmp_path / "worker" / "launches").iterdir())


def test_a_launch_gets_the_spare_executor_and_another_one_is_started(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        spare, worker = await one_spare(world), await world.registered()
        worker.tell(world.launch(ProcessKind.APP_MASTER, slots=0), world.me)
        assert (await world.told(Launched)).pid != spare, "an application master is something else"
        worker.tell(world.launch(ProcessKind.EXECUTOR), world.me)
        launched = await world.told(Launched, 2)
        assert launched.pid == spare
        await world.until(lambda: "spare-1" not in records(tmp_path), "it is recorded as the launch")
        following = await one_spare(world, other_than=spare)

        kill(spare)
        exited = await world.told(ProcessExited)
        assert (exited.launch_id, exited.status) == ("launch-2", -signal.SIGKILL)
        assert exited.log == "waits with 1 slots\nbegun app-1 True\n", "its output is in the launch's log"
        assert not psutil.pid_exists(spare)
        await world.until(lambda: records(tmp_path) == ["launch-1", "spare-2"], "its record is gone")
        assert spares(world) == [following]
        assert sorted(path.name for path in (tmp_path / "worker" / "work").iterdir()) == [
            "launch-1",
            "spare-2",
        ]

    run(tmp_path, scenario)


def test_launches_with_other_slots_or_settings_of_spark_get_a_process_of_their_own(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        spare, worker = await one_spare(world), await world.registered()
        sets = {"spark.driver-memory": "2 GiB"}
        spec = ApplicationSpec("app", world.archive.sha256, world.archive.file, config=sets)
        worker.tell(world.launch(ProcessKind.EXECUTOR, spec=spec), world.me)
        assert (await world.told(Launched)).pid != spare
        following = await one_spare(world, other_than=spare)
        assert not psutil.pid_exists(spare), "what is wanted now is another one"
        worker.tell(world.launch(ProcessKind.EXECUTOR, spec=spec, app_id="app-2"), world.me)
        assert (await world.told(Launched, 2)).pid == following

    run(tmp_path, scenario)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_spare_executor_outlives_its_worker(tmp_path: Path, number: signal.Signals) -> None:
    async def scenario(world: World) -> None:
        spare, worker = await one_spare(world), await world.registered()
        worker.tell(world.launch(ProcessKind.EXECUTOR), world.me)
        assert (await world.told(Launched)).pid == spare
        await one_spare(world, other_than=spare)
        world.processes[0].send_signal(number)
        await world.until(lambda: world.left() == [], "all have ended")
        if number == signal.SIGTERM:
            assert records(tmp_path) == []

    run(tmp_path, scenario)


def test_a_spare_executor_that_has_died_is_logged_and_not_used(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        spare, worker = await one_spare(world), await world.registered()
        kill(spare)
        log = tmp_path / "worker.log"
        ended = "a spare executor has ended with status -9: waits with 1 slots"
        await world.until(lambda: ended in log.read_text(), "its end is logged")
        worker.tell(world.launch(ProcessKind.EXECUTOR), world.me)
        launched = await world.told(Launched)
        assert "--spare" not in psutil.Process(launched.pid).cmdline()

    run(tmp_path, scenario)


APPLICATION = """
import os
from drivetrain import Application, sinks, sources
from neighbour import marked
{line}
app = Application("words")

def told(id: int) -> str:
    return marked(open("suffix.txt").read() + os.environ.get("TOLD", ""))

numbers = app.read(sources.generate(rate_per_s=100))
numbers.select("id", word=told).sink(sinks.parquet("{out}"))
"""
NEIGHBOUR = 'def marked(text):\n    return "<" + text + ">"\n'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeCluster]:
    directory = tmp_path_factory.mktemp("spares")
    (directory / "suffix.txt").write_text("here")
    with whole_cluster(directory, masters=1, workers=1, spares=1) as made:
        yield made


def submitted(cluster: WholeCluster, name: str, line: str) -> tuple[str, Path]:
    """Submit an application with a module beside its file; returns its id and its directory of results."""
    folder = cluster.directory / f"code-{name}"
    folder.mkdir()
    (folder / "words.py").write_text(APPLICATION.format(line=line, out=f"out-{name}"))
    (folder / "neighbour.py").write_text(NEIGHBOUR)
    cluster.command("submit", f"code-{name}/words.py", "--name", name, "--detached", expect=0)
    return name, cluster.directory / f"out-{name}"


def end(cluster: WholeCluster, app: str) -> None:
    """End an application, whose slots the next one needs."""
    cluster.client.kill(app)
    cluster.client.wait_gone(app, "1 min")


def executor_id(cluster: WholeCluster, app: str) -> str:
    _, status = cluster.status(app)
    assert status is not None
    return status.executors[0].executor


def is_spare(pid: int) -> bool:
    return "--spare" in psutil.Process(pid).cmdline()


def spare_waits(cluster: WholeCluster) -> psutil.Process:
    """Wait until the worker has a spare executor without a launch that has started Java; returns it."""

    def look() -> psutil.Process | None:
        for process in map(psutil.Process, cluster.processes("executor --spare")):
            if not has_launch(process) and java_of(process):
                return process
        return None

    return wait_for(look, "a spare executor")


def java_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children() if child.name() == "java"]


def is_idle(spare: psutil.Process) -> bool:
    """Whether it and its Java have done nothing for three seconds: what runs ahead has ended.

    Java alone may be idle before that, while Python imports.
    """
    before = cpu_seconds(spare)
    time.sleep(3.0)
    after = cpu_seconds(spare)
    return before.keys() == after.keys() and sum(after.values()) - sum(before.values()) < 0.3


def cpu_seconds(spare: psutil.Process) -> dict[int, float]:
    """The CPU seconds of each of its processes."""
    seconds = {}
    for process in (spare, *spare.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            seconds[process.pid] = sum(process.cpu_times()[:2])
    return seconds


def has_launch(process: psutil.Process) -> bool:
    return Path(process.cmdline()[-1]).with_name("launch.json").exists()


def require_words(out: Path, word: str) -> None:
    before = set(out.glob("part-*"))
    wait_for(lambda: len(set(out.glob("part-*")) - before) > 1, f"results in {out}")
    for file in set(out.glob("part-*")) - before:
        assert set(pq.read_table(file)["word"].to_pylist()) == {word}


def test_an_application_works_in_a_spare_executor_as_in_any_other(cluster: WholeCluster) -> None:
    spare_waits(cluster)
    app, out = submitted(cluster, "first", "")
    _, executor = cluster.wait_running(app)
    assert is_spare(executor)
    require_words(out, "<here>")

    spare_waits(cluster)
    kill(executor)
    _, following = cluster.wait_running(app, other_than=executor)
    assert is_spare(following), "the next executor is a spare one as well"
    require_words(out, "<here>")
    end(cluster, app)


def test_an_application_that_sets_variables_gets_a_spark_that_has_them(cluster: WholeCluster) -> None:
    spare_waits(cluster)
    app, out = submitted(cluster, "second", 'os.environ["TOLD"] = "-told"')
    _, executor = cluster.wait_running(app)
    assert not is_spare(executor), "it started anew"
    require_words(out, "<here-told>")
    log = b"".join(piece.data for piece in cluster.client.logs(app, "executor-" + executor_id(cluster, app)))
    assert b"environment variables have changed: TOLD" in log
    end(cluster, app)


def test_a_spare_executor_whose_java_has_died_starts_over_when_it_is_used(cluster: WholeCluster) -> None:
    spare = spare_waits(cluster)
    (java,) = java_of(spare)
    wait_for(lambda: is_idle(spare), "it waits")
    java.kill()
    wait_for(lambda: java.status() == psutil.STATUS_ZOMBIE, "its end")
    app, out = submitted(cluster, "third", "")
    _, executor = cluster.wait_running(app)
    assert executor == spare.pid
    assert not is_spare(executor), "it started over"
    require_words(out, "<here>")
    end(cluster, app)
