"""Random changes of random graphs while messages flow, on real Spark, beside a naive model: exact."""

from __future__ import annotations

from random import Random

import pytest
from harness import Harness
from random_changes import Drawn, Model, drawn_app, marks_in, next_of
from shop import Feed, Stream, wait_until

from drivetrain import start
from drivetrain.code.fingerprint import fingerprint
from drivetrain.core.change.graph_version import version_of
from drivetrain.core.change.live_change import Outcome
from drivetrain.core.plan.planner import plan
from drivetrain.runtime.control_requests import ask_change, asked_state, wait_ended
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.spark.prepare.graph_code import graph_as_code

TIMEOUT = "5 min"


class Drawer:
    """Changes the application that runs in a directory, and knows which versions were in force."""

    def __init__(self, drive: Harness, random: Random) -> None:
        self.directory = drive.directory
        self.random = random
        self.rundir = RunDirectory(str(drive.directory / "state"), "drawn", {})
        self.code = 1
        self.known: dict[int, Drawn] = {}
        """The versions by their number."""

    @property
    def now(self) -> Drawn:
        """The version in force."""
        record = self.rundir.versions.in_force()
        return Drawn() if record is None else self.known[record.number]

    def versions(self) -> list[Drawn]:
        """Those that were in force, in that order; after one that was rolled back comes the one before."""
        found: list[Drawn] = []
        stored = self.rundir.versions
        for number in stored.numbers():
            found.append(self.known[number])
            if stored.is_rolled_back(number):
                found.append(self.known[stored.version(number).follows])
        return found

    def change(self) -> None:
        """Change it once, and wait for the end of that; raises UnavailableError when it dies meanwhile."""
        before, stored = self.rundir.versions.in_force(), self.rundir.versions
        assert before is not None
        goes_back = self.random.random() < 0.2 and len(self.known) > 2
        self.code += 1
        drawn = next_of(self.now, self.code, self.random)
        if goes_back:
            fine = [n for n in stored.numbers() if not self.known[n].fails and self.known[n] != self.now]
            drawn = self.known[self.random.choice(fine)] if fine else drawn
        graph = drawn_app(self.directory, drawn).graph()
        record = version_of(plan(graph), fingerprint)
        self.known[max(stored.numbers()) + 1] = drawn
        number = ask_change(self.rundir, record, graph_as_code(graph), before.number)
        state = wait_ended(lambda: asked_state(self.rundir), number, 240.0)
        assert state.outcome is (Outcome.ROLLED_BACK if drawn.fails else Outcome.DONE), (drawn, state)
        self.wait_left()

    def wait_left(self) -> None:
        """Wait until nothing is left of the windows that the version in force lacks."""
        fragments = self.rundir.path / "fragments"
        gone = {f"window{which}" for which in (0, 1)} - {f"window{which}" for which in self.now.windows}
        wait_until(lambda: not any((fragments / name).exists() for name in gone))

    def model(self, feed: Feed) -> Model:
        """What has to be shown by now."""
        return Model(self.directory, self.versions(), feed.count)


@pytest.mark.parametrize(
    ("seed", "changes"),
    [(3, 3), *(pytest.param(seed, 6, marks=pytest.mark.nightly("seed 3")) for seed in (1, 2, *range(4, 12)))],
)
def test_every_version_shows_what_the_messages_of_its_span_make(
    drive: Harness, seed: int, changes: int
) -> None:
    feed = Feed(drive.directory)
    feed.put(9)
    drawer = Drawer(drive, Random(seed))
    drawer.known[1] = Drawn()
    app = drawn_app(drive.directory, Drawn())
    with start(app, drive.config()) as running, Stream(feed, 0.5) as stream:
        wait_until(lambda: len(marks_in(drive.directory / "marked")) >= 9, lambda: running.is_running)
        for _ in range(changes):
            drawer.change()
        stream.is_over.set()
        stream.thread.join()
        wait_until(lambda: drawer.model(feed).is_complete(), lambda: running.is_running)
        running.stop()
        running.wait(TIMEOUT)
    assert drawer.model(feed).is_complete()
