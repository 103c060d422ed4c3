"""What users call: it has examples that work, and takes durations as text."""

from __future__ import annotations

import datetime as dt
import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from markdown_pages import blocks, pages

import drivetrain
import drivetrain.api
from drivetrain import Application, agg, partitioners, sinks, sources, windows
from drivetrain.cluster.client import BlockingClient, Client

MODULES = sorted(module.name for module in pkgutil.walk_packages(drivetrain.api.__path__, "drivetrain.api."))
MODULES += [
    "drivetrain.core.job.run_progress",
    "drivetrain.spark.entry_points",
    "drivetrain.spark.run.running_application",
    "drivetrain.spark.state.state_query",
]
TIMES = {"start_ms", "at_ms", "end_ms", "clock_ms", "timestamp_ms"}
"""Parameters of hooks and results: moments, which Drivetrain or the data give."""
HOOKS = re.compile(r"(Task|PersistentTask)\.on_\w+|Monoid\.(zero|add|plus|result)")
"""Methods that users write: the example of the class has them."""
FOR_THE_ENGINE = {"Application.call_finish_hooks", "RunResult.check"}


@dataclass(frozen=True)
class Sale:
    item: str
    price: float
    sold: dt.datetime


def example_names() -> dict[str, Any]:
    """What the examples in docstrings may use: the public names, and two streams."""
    app = Application("shop")
    return {
        **{name: getattr(drivetrain, name) for name in drivetrain.__all__},
        "Sale": Sale,
        "app": app,
        "lines": app.read(sources.text("lines/"), name="lines"),
        "sales": app.read(sources.json("sales/", schema=Sale), name="sales"),
    }


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_work(module: str) -> None:
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    told: list[str] = []
    for example in doctest.DocTestFinder().find(importlib.import_module(module)):
        example.globs = {**example_names(), **example.globs}
        doctest.DocTestRunner(optionflags=flags).run(example, out=told.append)
    assert "".join(told) == ""


def public() -> Iterator[tuple[str, Any]]:
    """Public functions, classes and their methods, by name."""
    for module in (agg, partitioners, sinks, sources, windows):
        for name in module.__all__:
            if inspect.isroutine(found := getattr(module, name)) or inspect.isclass(found):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", found
    named = {name: getattr(drivetrain, name) for name in drivetrain.__all__}
    for name, found in {**named, "BlockingClient": BlockingClient, "Client": Client}.items():
        if inspect.isclass(found) or inspect.isfunction(found):
            yield name, found
        if inspect.isclass(found):
            for method, value in vars(found).items():
                made = value.fget if isinstance(value, property) else value
                if not method.startswith("_") and inspect.isfunction(made):
                    yield f"{name}.{method}", made


def test_durations_are_text() -> None:
    numbers = [
        f"{name}({parameter})"
        for name, found in public()
        if inspect.isfunction(found)
        for parameter in inspect.signature(found).parameters
        if re.search(r"_(us|ms|s|seconds|minutes)$", parameter) and parameter not in TIMES
    ]
    assert numbers == ["sources.generate(rate_per_s)"], "a rate is a number, a duration is text"


def test_all_that_users_call_has_an_example() -> None:
    guide = "\n".join(b.code for page in pages() for b in blocks(page) if b.info.startswith("python"))
    missing, of_class = [], ""
    for name, found in public():
        text = inspect.getdoc(found)
        assert text, name
        if inspect.isclass(found):
            of_class = text
        is_made_by_function = inspect.isclass(found) and name.startswith(("sources.", "sinks."))
        is_of_client = name.startswith(("Client", "BlockingClient"))  # the guide is about these
        if HOOKS.fullmatch(name) or name in FOR_THE_ENGINE or is_made_by_function or is_of_client:
            continue
        used = re.compile(rf"[. ]{name.rpartition('.')[2]}\b")
        if ">>>" not in text and not used.search(guide) and not used.search(of_class):
            missing.append(name)
    assert not missing, missing
