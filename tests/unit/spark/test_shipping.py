"""The user's own modules go to workers by value: a process that cannot import them runs their code."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle

from drivetrain.api import Application, Monoid, partitioners, sinks, sources
from drivetrain.api.application import Processor
from drivetrain.code import installed_code
from drivetrain.spark.prepare.code_shipping import ship

MAIN = """
from dataclasses import dataclass
import beside_{n}
from beside_{n} import shout
from drivetrain import Monoid, Task

@dataclass
class Word:
    text: str

def louder(line: str) -> str:
    return shout(line) + beside_{n}.MARK

def worded(line: str) -> Word:
    return Word(line)

def add(mark: str, line: str) -> str:
    return shout(line) + mark

class Longest(Monoid):
    def zero(self): return ""
    def add(self, state, message): return max(state, message, key=len)
    def plus(self, left, right): return max(left, right, key=len)
    def result(self, state) -> str: return shout(state)

class Echo(Task):
    def on_next(self, message: str) -> list[str]: return [shout(message)]
"""
BESIDE = """
MARK = "!"

def shout(line):
    return line.upper()
"""
RUN = """
import pickle, sys
print(pickle.loads(sys.stdin.buffer.read())())
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An application's module with another one beside it, both importable here only."""
    n = abs(hash(str(tmp_path)))
    (tmp_path / f"main_{n}.py").write_text(MAIN.replace("{n}", str(n)))
    (tmp_path / f"beside_{n}.py").write_text(BESIDE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(f"main_{n}")
    for name in (f"main_{n}", f"beside_{n}"):
        module = sys.modules.pop(name, None)
        if module is not None and name in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(module)


def elsewhere(call: Callable[[], Any]) -> str:
    """What `call` prints in a process that has only what is installed."""
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=cloudpickle.dumps(call), capture_output=True, timeout=60, cwd="/"
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def application(build: Callable[[Any], Any]) -> Application:
    app = Application("app")
    build(app.read(sources.text("/in"))).sink(sinks.none())
    return app


def test_a_function_and_what_it_uses_from_the_file_beside_it_run_elsewhere(user: ModuleType) -> None:
    shipped = ship(application(lambda s: s.map(user.louder)).graph())
    assert shipped == [user.__name__, user.shout.__module__]
    assert elsewhere(partial(user.louder, "abc")) == "ABC!"


def test_a_class_of_messages_is_shipped_with_the_function_that_makes_them(user: ModuleType) -> None:
    ship(application(lambda s: s.map(user.worded)).graph())
    assert elsewhere(partial(user.worded, "abc")) == "Word(text='abc')"


def test_what_a_partial_is_made_of_is_shipped(user: ModuleType) -> None:
    add = partial(user.add, "?")
    ship(application(lambda s: s.map(add, returns=str)).graph())
    assert elsewhere(partial(add, "abc")) == "ABC?"


def test_a_monoid_and_the_functions_of_a_fold_are_shipped(user: ModuleType) -> None:
    monoid: Monoid[Any, Any] = user.Longest()
    assert ship(application(lambda s: s.group_by("value").aggregate(x=monoid)).graph())
    assert elsewhere(partial(monoid.result, "abc")) == "ABC"


def test_the_functions_of_a_reduction_are_shipped(user: ModuleType) -> None:
    shipped = ship(application(lambda s: s.group_by(k="value").reduce(user.add)).graph())
    assert user.__name__ in shipped


def test_a_task_and_its_partitioner_are_shipped(user: ModuleType) -> None:
    app = Application("app")
    task = Processor(user.Echo)
    app.connect(Processor(sources.text("/in")), task, partitioners.custom(user.add))
    app.connect(task, Processor(sinks.none()))
    assert user.__name__ in ship(app.graph())
    assert elsewhere(partial(user.Echo().on_next, "abc")) == "['ABC']"


def test_objects_among_the_globals_are_not_asked_for_anything(user: ModuleType) -> None:
    class Proxy:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"asked for {name}")

    user.proxy = Proxy()  # type: ignore[attr-defined]
    assert user.__name__ in ship(application(lambda s: s.map(user.louder)).graph())


def test_what_is_installed_built_in_or_ours_is_sent_by_name() -> None:
    assert ship(application(lambda s: s.map(str.upper, returns=str)).graph()) == []
    assert ship(application(lambda s: s.map(Path.name.fget, returns=str)).graph()) == []  # type: ignore[attr-defined]
    assert ship(application(lambda s: s.map(ship, returns=str)).graph()) == []


def test_a_directory_whose_name_only_begins_like_ours_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: ModuleType
) -> None:
    places = (*installed_code._places(), f"{str(tmp_path)[:-1]}/")
    monkeypatch.setattr(installed_code, "_places", lambda: places)
    assert user.__name__ in ship(application(lambda s: s.map(user.louder)).graph())
