"""Recipes, their programs, the model and the shrinker, without Spark."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from drivetrain.code.application_file import load_application
from drivetrain.core.plan.planner import plan
from drivetrain.crash_points import CrashPoint, armed, maybe_crash

from . import running
from .drawing import (
    CHECKPOINT_POINTS,
    KILLED_POINTS,
    OF_CHANGES,
    killed_recipe_of,
    recipe_of,
    silent_recipe_of,
)
from .drawing_kafka import TRANSACTION_POINTS
from .model import Message, expected
from .model_hash import in_sample, xxh64
from .model_windows import as_of, earlier_counts, pauses
from .program import program_of
from .recipe import (
    Deduplicate,
    Early,
    Facts,
    Filter,
    Join,
    Keyed,
    Late,
    Match,
    Recipe,
    Sink,
    Source,
    TableJoin,
    Top,
    Window,
    facts_of,
)
from .running import CrashError, Crashes, failure_of_killed, written
from .shrinking import is_sound, shrunk, smaller_ones

SEEDS = range(40)
S = 1_000_000
"""A second in µs."""


def recipe(
    *steps: object, rows: tuple[tuple[int, str | None, int | None], ...], disorder_ms: int = 0
) -> Recipe:
    """One source, steps and a sink at the end."""
    source = Source("parquet", (tuple((ts, key, n, 0) for ts, key, n in rows),), disorder_ms)
    return Recipe(0, "string", (source,), steps, (Sink(len(steps), "parquet"),))  # type: ignore[arg-type]


def model_of(made: Recipe) -> dict[tuple[object, ...], int]:
    """What the first sink holds."""
    return dict(expected(made)[0].rows)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("fake_broker")
def test_the_program_of_a_seed_can_be_loaded_and_planned(tmp_path: Path, seed: int) -> None:
    made = recipe_of(seed)
    assert is_sound(made)
    assert recipe_of(seed) == made
    plan(load_application(str(written(made, tmp_path, f"recipe_{seed}")), {}).graph())


def test_seeds_come_to_every_kind_of_step_and_sink() -> None:
    known = [recipe_of(seed) for seed in range(300)]
    steps = {(type(step).__name__, getattr(step, "how", "")) for made in known for step in made.steps}
    assert {
        "Window",
        "Late",
        "Join",
        "Union",
        "Deduplicate",
        "TableJoin",
        "Task",
        "Persistent",
        "Top",
        "Sample",
        "Early",
        "AsOfJoin",
        "Repartition",
    } <= {n for n, _ in steps}
    assert {("Task", how) for how in ("each", "batch", "outputs", "ticks", "totals")} <= steps
    assert {("Persistent", how) for how in ("each", "windows", "changes", "asked", "timers")} <= steps
    assert {("Keyed", how) for how in ("earlier", "pauses")} <= steps
    assert {step.migrates for made in known for step in made.steps if isinstance(step, Keyed)} == {
        True,
        False,
    }
    assert {step.every_ms for made in known for step in made.steps if isinstance(step, Early)} == {0, 300}
    assert {("Match", how) for how in ("pair", "absent", "repeated")} <= steps
    matched = [step for made in known for step in made.steps if isinstance(step, Match)]
    assert {step.overlapping for step in matched} == {True, False}
    assert {step.refreshed for made in known for step in made.steps if isinstance(step, TableJoin)} == {
        True,
        False,
    }
    assert {("TableJoin", how) for how in ("inner", "left", "semi", "anti")} <= steps
    windows = [step for made in known for step in made.steps if isinstance(step, Window)]
    assert {w.kind for w in windows if w.as_sql} == {"tumbling", "sliding", "session", "everything"}
    sinks = {sink.kind for made in known for sink in made.sinks}
    assert sinks >= {
        "parquet",
        "csv",
        "json",
        "text",
        "sqlite",
        "upsert",
        "batches",
        "memory",
        "console",
        "none",
        "kafka",
    }
    sources = {source.kind for made in known for source in made.sources}
    assert sources == {"parquet", "csv", "jsonl", "text", "items", "generate", "socket", "kafka"}
    assert any(made.watched for made in known)


def test_killed_recipes_die_at_every_point_that_they_reach() -> None:
    others = {CrashPoint.SAVEPOINT_UPLOADED, CrashPoint.ENTRY_DROPPED}
    others |= {CrashPoint.SUBSCRIPTION_ASKED, CrashPoint.SUBSCRIPTION_NOTED}
    others |= {CrashPoint.COPY_UPLOADED, CrashPoint.COPY_NAMED}
    others |= {CrashPoint.HISTORY_WANTED, CrashPoint.HISTORY_PART, CrashPoint.HISTORY_PLACED}
    others |= {CrashPoint.HANDOVER_PAUSED, CrashPoint.HANDOVER_RECORDED}
    divisions = {CrashPoint.BEFORE_DIVISION, CrashPoint.AFTER_DIVISION}
    dropped = {CrashPoint.STATE_EMPTIED, CrashPoint.STATE_RESTORED}
    elsewhere = {*TRANSACTION_POINTS, *OF_CHANGES, *others, *divisions, *dropped}
    assert {*KILLED_POINTS} | elsewhere == {*CrashPoint}
    assert not {*KILLED_POINTS} & elsewhere
    known = [killed_recipe_of(seed) for seed in range(60)]
    drawn = {CrashPoint(point) for made in known for point, _ in made.crashes}
    assert drawn >= {*KILLED_POINTS}
    assert not drawn & {*OF_CHANGES}


def test_every_kind_of_step_is_drawn_for_applications_that_are_killed() -> None:
    steps = [step for seed in range(300) for step in killed_recipe_of(seed).steps]
    kinds = {(type(step).__name__, getattr(step, "how", "")) for step in steps}
    assert kinds >= {("Match", how) for how in ("pair", "absent", "repeated")}
    assert kinds >= {("Keyed", how) for how in ("earlier", "pauses")}
    assert kinds >= {("TableJoin", how) for how in ("inner", "left", "semi", "anti")}
    assert {"AsOfJoin", "Early", "Repartition", "Sample", "Top"} <= {name for name, _ in kinds}
    assert {step.refreshed for step in steps if isinstance(step, TableJoin)} == {True, False}


def test_applications_with_silent_inputs_die_at_every_point_of_a_checkpoint() -> None:
    known = [silent_recipe_of(seed) for seed in range(20)]
    assert all(made.watched and dict(made.sets)["checkpoint.mode"] == "on" for made in known)
    assert {CrashPoint(point) for made in known for point, _ in made.crashes} == {*CHECKPOINT_POINTS}


def test_windows_have_late_messages_natively_and_in_python() -> None:
    facts = [(s, f) for seed in range(300) for s, f in _windows_with_facts(recipe_of(seed))]
    loose = {(step.kind, step.how) for step, before in facts if before.loose}
    assert loose >= {(kind, how) for kind in ("tumbling", "sliding") for how in ("count", "tally")}


def _windows_with_facts(made: Recipe) -> list[tuple[Window, Facts]]:
    facts = facts_of(made)
    return [(step, facts[step.inputs[0]]) for step in made.steps if isinstance(step, Window)]


def test_the_model_knows_nothing_of_drivetrain() -> None:
    folder = Path(__file__).parent
    for name in (
        "model.py",
        "model_windows.py",
        "model_patterns.py",
        "model_hash.py",
        "recipe.py",
        "values.py",
    ):
        assert "drivetrain" not in (folder / name).read_text(), name


def test_the_model_of_windows() -> None:
    rows = ((S, "a", 1), (S + 1, "b", 2), (2 * S, "a", None), (-1, "a", 5))
    made = recipe(Window(inputs=(0,), kind="tumbling", how="several", size_ms=1000), rows=rows)
    assert model_of(made) == {
        (2 * S - 1000, "a", 1, S, 2 * S, 1, 1, 1): 1,
        (2 * S - 1000, "b", 2, S, 2 * S, 1, 2, 2): 1,
        (3 * S - 1000, "a", None, 2 * S, 3 * S, 1, None, None): 1,
        (-1000, "a", 5, -S, 0, 1, 5, 5): 1,
    }
    session = recipe(Window(inputs=(0,), kind="session", how="count", size_ms=1000), rows=rows)
    assert model_of(session) == {  # exactly the gap later begins the next one
        (2 * S - 1000, "a", 1, S, 2 * S): 1,
        (2 * S, "b", 1, S + 1, 2 * S + 1): 1,  # the last whole millisecond before the end
        (3 * S - 1000, "a", 1, 2 * S, 3 * S): 1,
        (S - 1000, "a", 1, -1, S - 1): 1,
    }


def test_the_model_of_joins_and_of_deduplication() -> None:
    rows = ((0, "a", 1), (S, "a", 2), (S + 1, "a", 3), (0, None, 4))
    doubled = Filter(inputs=(0,), how="sql", modulo=2, rest=1)  # the right side: 2 and 4
    made = recipe(doubled, Join(inputs=(0, 1), within_ms=1000, how="left"), rows=rows)
    assert model_of(made) == {(S, "a", 3): 1, (S, "a", 4): 1, (S + 1, "a", 5): 1, (0, None, 4): 1}
    once = recipe(Deduplicate(inputs=(0,), within_ms=1000, exact=False), rows=rows)
    assert model_of(once) == {(0, "a", 0): 1, (S + 1, "a", 1000): 1, (0, None, 0): 1}


def test_the_model_of_the_largest() -> None:
    rows = ((0, "a", 3), (5, "a", 7), (9, "a", 7), (1, "a", None), (S, "a", 9), (2, "b", 1))
    made = recipe(Top(inputs=(0,), kind="tumbling", most=2, size_ms=1000), rows=rows)
    assert model_of(made) == {
        (S - 1000, "a", 7, 0, S, 1): 1,
        (S - 1000, "a", 7, 0, S, 2): 1,
        (S - 1000, "b", 1, 0, S, 1): 1,
        (2 * S - 1000, "a", 9, S, 2 * S, 1): 1,
    }


def test_the_hash_of_the_model_is_the_published_one() -> None:
    """The value is that of the reference implementation for eight zero bytes."""
    assert xxh64(0, 0) == 0x34C96ACDCADB1BBB
    kept = [n for n in range(1000) if in_sample(n, 20, 0)]
    assert 150 < len(kept) < 250


def test_an_input_without_an_end_gives_what_the_clock_has_passed() -> None:
    rows = ((0, "a", 1), (10 * S, "a", 2))
    made = recipe(Window(inputs=(0,), kind="tumbling", how="sum", size_ms=1000), rows=rows, disorder_ms=9000)
    assert model_of(replace(made, watched=True)) == {(S - 1000, "a", 1, 0, S): 1}


def test_a_failing_recipe_is_made_as_small_as_it_can_be() -> None:
    def failing(made: Recipe) -> str | None:
        has_session = any(isinstance(step, Window) and step.kind == "session" for step in made.steps)
        return "wrong" if has_session and any(row[1] == "b" for row in made.sources[0].rows) else None

    known = (recipe_of(seed) for seed in range(1_000))
    large = next(made for made in known if failing(made) and len(made.steps) > 3 and len(made.sinks) > 1)
    small, _ = shrunk(large, "wrong", failing, tries=2_000)
    assert len(small.steps) == 1
    assert [row[1] for row in small.sources[0].rows] == ["b"]
    assert (small.crashes, small.sets, len(small.sinks)) == ((), (), 1)


def test_smaller_recipes_are_sound_programs() -> None:
    for seed in range(12):
        for smaller in smaller_ones(recipe_of(seed)):
            compile(program_of(smaller), "smaller", "exec")
            assert all(
                isinstance(smaller.step(s.inputs[0]), Window) for s in smaller.steps if isinstance(s, Late)
            )


def test_a_killed_application_goes_on_whatever_became_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "error: fragment step5: a Python process of Spark did not start in time"
    ends = {"killed": (-signal.SIGKILL, ""), "late": (4, late), "wrong": (4, "error: no"), "well": (0, "")}
    gone_on: list[Sequence[str]] = []  # what is left runs in this process, and is told where others died
    monkeypatch.setattr(
        running, "failure_of", lambda _recipe, _folder, _name, killed: gone_on.append((*killed,))
    )
    homes: list[str] = []

    def failure(*lives: str) -> str | None:
        left = iter(lives)

        def process(_recipe: Recipe, file: Path, _crash: object) -> FakeProcess:
            homes.append(file.stem)
            return FakeProcess(*ends[next(left)])

        monkeypatch.setattr(running, "_process", process)
        return failure_of_killed(made, tmp_path, "killed", deaths)

    deaths: list[str] = []

    made = replace(recipe(rows=((0, "a", 1),)), crashes=(("after-sink", 1), ("before-sink", 2)))
    assert failure("killed", "late") is None
    assert failure("late", "well") is None
    assert [len(killed) for killed in gone_on] == [2, 1]
    assert "exit code 4" in str(failure("killed", "wrong"))
    assert len(gone_on) == 2
    assert deaths == ["after-sink:1", "after-sink:1"]
    homes.clear()
    assert failure("well", "killed") is None
    assert (homes, deaths[2:]) == (["killed", "killed_1"], ["before-sink:2"]), "it had ended: another begins"
    assert [len(killed) for killed in gone_on[2:]] == [0, 1], "both are judged"


class FakeProcess:
    pid = 0

    def __init__(self, returncode: int, output: str) -> None:
        self.returncode = returncode
        self._output = output

    def communicate(self, timeout: float) -> tuple[bytes, None]:
        return self._output.encode(), None


def test_crashes_come_one_after_the_other() -> None:
    crashes = Crashes((("after-sink", 2), ("before-sink", 1)))
    with armed(crashes):
        maybe_crash(CrashPoint.BEFORE_SINK)
        maybe_crash(CrashPoint.AFTER_SINK)
        with pytest.raises(CrashError, match="died at after-sink"):
            maybe_crash(CrashPoint.AFTER_SINK)
        with pytest.raises(CrashError, match="died at before-sink"):
            maybe_crash(CrashPoint.BEFORE_SINK)
        maybe_crash(CrashPoint.BEFORE_SINK)
    assert crashes.story == ["died at after-sink", "died at before-sink"]


def test_the_model_of_joins_as_of_and_of_tasks_in_order() -> None:
    a = [Message(ts, "a", 1) for ts in (0, 1_000, 1_000, 5_000, 6_999)]
    assert [(m.ts, m.n) for m in earlier_counts(a, 1_001)] == [
        (0, 0), (1_000, 1), (1_000, 2), (5_000, 0), (6_999, 0)
    ]  # fmt: skip
    assert [(m.ts, m.n) for m in earlier_counts(a, 1_000)] == [
        (0, 0), (1_000, 0), (1_000, 1), (5_000, 0), (6_999, 0)
    ]  # fmt: skip
    assert [(m.ts, m.n) for m in pauses(a, 2)] == [(3_000, 3), (8_000, 2)]
    versions = [Message(ts, "a", None) for ts in (1_000, 6_000)]
    seen = as_of([*a, Message(9_000, None, 1), Message(0, "b", 1)], versions, keeps_all=False)
    assert [(m.ts, m.n) for m in seen] == [(1_000, 2), (1_000, 2), (5_000, 2), (6_999, 7)]
    kept = as_of([Message(0, "b", 1)], versions, keeps_all=True)
    assert [(m.ts, m.n) for m in kept] == [(0, 1)]
