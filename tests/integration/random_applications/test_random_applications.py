"""Whatever the application, its data and where it dies: its outputs are what the model says.

`TESTS_APPLICATIONS` says how many are tried (the nightly run), or which (`128-600`), and for every 30 of
them one more is killed, and one whose inputs fall silent; `DRIVETRAIN_SEED=n` runs one. A failure prints the
smallest application found that fails in the same way, as a program that can be run.

Seed 45 is a watched input that falls silent, with checkpoints on. 717 reads and writes Kafka, and dies right
after a transaction, without an end and with a silent partition.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from drivetrain.simulator.simulate import chosen_seeds

from .drawing import killed_recipe_of, recipe_of, silent_recipe_of
from .program import DATABASE, MYSQL, REDIS, program_of
from .program_kafka import KAFKA
from .recipe import Recipe
from .running import failure_of, failure_of_killed
from .shrinking import shrunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, _, END = (os.environ.get("TESTS_APPLICATIONS") or "0").rpartition("-")
APPLICATIONS = range(int(FIRST or 0), int(END))
EVERY_30 = range(APPLICATIONS.start // 30, APPLICATIONS.stop // 30)
DEFAULT = (18, 717)
"""A few that have many kinds of steps, sources and sinks between them; all of them have passed."""
IS_ONE = "DRIVETRAIN_SEED" in os.environ
SEEDS = chosen_seeds(0) if IS_ONE else APPLICATIONS if APPLICATIONS else DEFAULT
KILLED = chosen_seeds(0) if IS_ONE else EVERY_30 if APPLICATIONS else ()
SILENT = chosen_seeds(0) if IS_ONE else EVERY_30 if APPLICATIONS else ()
TRIES = 40
"""How many smaller applications are tried of one that fails."""
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all programs are: each folder with a program stays on the path of this process."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def servers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Recipe], Recipe]:
    """Starts databases and a broker for a recipe that needs them."""

    def started(recipe: Recipe) -> Recipe:
        if any(sink.kind == "postgresql" for sink in recipe.sinks):
            monkeypatch.setenv(DATABASE, request.getfixturevalue("postgres").dsn())
        if any(sink.kind == "mysql" for sink in recipe.sinks):
            mariadb = request.getfixturevalue("mariadb")
            mariadb.run("create database if not exists random")
            monkeypatch.setenv(MYSQL, mariadb.dsn("random"))
        if any(sink.kind == "redis" for sink in recipe.sinks):
            monkeypatch.setenv(REDIS, request.getfixturevalue("redis_server").dsn())
        if recipe.needs_kafka:
            monkeypatch.setenv(KAFKA, request.getfixturevalue("broker").bootstrap)
        return recipe

    return started


@pytest.fixture(scope="module")
def deaths() -> Iterator[dict[int, list[str]]]:
    """Where the processes of killed applications died, by seed: most of them must have died somewhere."""
    found: dict[int, list[str]] = {}
    yield found
    alive = [seed for seed, died in found.items() if not died]
    assert len(alive) <= len(found) / 4, f"nobody died in the applications of the seeds {alive}"


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_application_gives_what_the_model_says(
    spark: SparkSession, folder: Path, servers: Callable[[Recipe], Recipe], seed: int
) -> None:
    _judge(servers(recipe_of(seed)), folder, failure_of)


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", KILLED)
def test_a_random_application_that_is_killed_gives_what_the_model_says(
    spark: SparkSession,
    folder: Path,
    servers: Callable[[Recipe], Recipe],
    deaths: dict[int, list[str]],
    seed: int,
) -> None:
    died = deaths[seed] = []
    _judge(servers(killed_recipe_of(seed)), folder, partial(failure_of_killed, deaths=died))


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", SILENT)
def test_a_random_application_that_is_killed_shows_its_windows_though_its_inputs_are_silent(
    spark: SparkSession, folder: Path, servers: Callable[[Recipe], Recipe], seed: int
) -> None:
    _judge(servers(silent_recipe_of(seed)), folder, failure_of_killed)


def _judge(recipe: Recipe, folder: Path, run: Callable[[Recipe, Path, str], str | None]) -> None:
    names = (f"application_{recipe.seed}_{i}" for i in _NUMBERS)

    def failing(tried: Recipe) -> str | None:
        name = next(names)
        failure = run(tried, folder, name)
        shutil.rmtree(folder / name, ignore_errors=True)
        return failure

    failure = failing(recipe)
    if failure is not None:
        small, failure = shrunk(recipe, failure, failing, TRIES)
        pytest.fail(f"DRIVETRAIN_SEED={recipe.seed}\n\n{program_of(small)}\n\n{failure}", pytrace=False)
