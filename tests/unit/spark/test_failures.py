"""Errors on their way through Spark: they come out as they went in, or translated, never as a page."""

from __future__ import annotations

import errno
import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drivetrain.core
import drivetrain.runtime.channel.segments
from drivetrain.errors import (
    DiskFullError,
    DrivetrainError,
    GraphError,
    InternalError,
    OperatorError,
    OperatorTypeError,
    UnavailableError,
    UserError,
)
from drivetrain.spark.session.spark_errors import (
    EmbeddedError,
    analysis_error,
    embedded,
    recovered,
    translated,
)

OPTIONAL = st.none() | st.text()

# All modules whose errors cross Spark, so that it does not depend on other tests which classes there are.
for module in pkgutil.walk_packages(drivetrain.core.__path__, "drivetrain.core."):
    importlib.import_module(module.name)


def tree(root: type[DrivetrainError] = DrivetrainError) -> list[type[DrivetrainError]]:
    return [root, *(c for sub in root.__subclasses__() for c in tree(sub))]


def ours() -> list[type[DrivetrainError]]:
    """The classes that an error in a worker can have: those of the layers that run there."""
    layers = ("drivetrain.errors", "drivetrain.core", "drivetrain.spark")
    return [c for c in dict.fromkeys(tree()) if c.__module__.startswith(layers)]


def through_spark(error: DrivetrainError) -> DrivetrainError:
    """As Spark tells it: the Python traceback inside a Java one, sent as UTF-8."""
    text = (
        "org.apache.spark.SparkException: Task 0 in stage 1.0 failed 1 times\n"
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f'  File "worker.py", line 1, in main\n{embedded(error)}\n\n\tat Thread.run(Thread.java)'
    )
    found = recovered(text.encode().decode())
    assert found is not None
    return found


@pytest.mark.parametrize("cls", ours(), ids=lambda c: c.__name__)
def test_an_error_of_every_class_comes_out_as_it_went_in(cls: type[DrivetrainError]) -> None:
    error: DrivetrainError
    if issubclass(cls, OperatorError):
        error = cls("boom", operator="map (app.py:3)", message="'x'", user_traceback="Traceback …\n  boom")
    elif issubclass(cls, InternalError):
        error = cls("boom", history=["first", "second"], where="here")
    else:
        error = cls("boom", where="here", expected="a", got="b", remedy="c")
    found = through_spark(error)
    assert type(found) is cls
    assert vars(found) == vars(error)
    assert str(found) == str(error)
    assert found.args == error.args
    assert found.code == error.code


def test_classes_have_names_of_their_own_so_that_one_is_found_by_it() -> None:
    names = [c.__name__ for c in ours()]
    assert len(names) == len(set(names))


@given(st.text(), OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL)
def test_any_text_comes_out_as_it_went_in(
    what: str, where: Any, expected: Any, got: Any, remedy: Any
) -> None:
    error = GraphError(what, where=where, expected=expected, got=got, remedy=remedy)
    assert vars(through_spark(error)) == vars(error)


@pytest.mark.parametrize(
    "text", ["x" * 1_000_000, "⟦drivetrain:abc⟧", "\ud800", "naïve — 数 🚂", "a\n\tat b\0c"]
)
def test_long_and_odd_texts_come_out_whole(text: str) -> None:
    error = OperatorError(text, operator=text, message=text, user_traceback=text)
    assert vars(through_spark(error)) == vars(error)


def test_text_without_an_error_of_ours_has_none() -> None:
    assert recovered("java.lang.NullPointerException") is None
    assert recovered("⟦drivetrain:⟧") is None


def test_an_embedded_error_also_reads_as_what_it_is() -> None:
    error = embedded(GraphError("no sink", where="app"))
    assert isinstance(error, EmbeddedError)
    assert str(error).endswith("app: no sink")


def test_a_class_that_is_not_known_here_is_told_by_name() -> None:
    class NotOfTheTree(Exception):  # noqa: N818 - its name is what is asked for
        what = "x"

    with pytest.raises(InternalError, match="NotOfTheTree"):
        recovered(str(embedded(NotOfTheTree("x"))))  # type: ignore[arg-type]


# -- what is not ours -------------------------------------------------------------------------------------


def test_our_own_error_is_not_translated() -> None:
    error = GraphError("x")
    assert translated(error) is error


def test_an_error_of_ours_is_found_in_what_spark_raised_or_in_its_cause() -> None:
    inner = GraphError("no such column", where="select (app.py:3)")
    assert str(translated(RuntimeError(f"stage failed: {embedded(inner)}"))) == str(inner)
    outer = RuntimeError("query terminated")
    outer.__cause__ = embedded(inner)
    assert str(translated(outer)) == str(inner)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("java.io.IOException: No space left on device"),
        OSError(errno.ENOSPC, "odd words"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
    ],
)
def test_a_full_disk_is_told_as_one_with_the_remedy(error: BaseException) -> None:
    told = translated(error, where="hourly")
    assert isinstance(told, DiskFullError)
    assert told.where == "hourly"
    assert "free some space" in str(told)


def test_javas_end_of_file_has_no_message_and_is_found_in_its_stack() -> None:
    error = RuntimeError("[STREAM_FAILED] Query [id = 1] terminated with exception:  SQLSTATE: XXKST")
    assert type(translated(error)) is UserError
    error._stackTrace = "org.apache.spark.x\nCaused by: java.io.EOFException\n\tat X"  # type: ignore[attr-defined]
    assert isinstance(translated(error), UnavailableError)


@pytest.mark.parametrize(
    "text",
    [
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Broken pipe SQLSTATE: XXKST",
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat X.scala:1",
    ],
)
def test_a_python_process_that_is_gone_is_no_mistake_of_the_user_and_may_be_tried_again(text: str) -> None:
    error = translated(RuntimeError(text), where="fragment a")
    assert isinstance(error, UnavailableError)
    assert error.exit_code == 4
    assert "memory" in str(error)


def test_a_python_process_that_a_busy_machine_started_late_is_no_mistake_of_the_user() -> None:
    text = "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat X.scala:1"
    error = translated(RuntimeError(text), where="fragment a")
    assert isinstance(error, UnavailableError)
    assert "did not start in time" in error.what


def test_a_function_that_cannot_be_sent_is_told_with_the_remedy() -> None:
    error = RuntimeError("[CANNOT_PICKLE] PicklingError: cannot pickle '_thread.lock' object")
    told = translated(error, where="map (app.py:3)")
    assert isinstance(told, GraphError)
    assert "create them inside it" in str(told)


def test_what_nobody_knows_is_shortened_to_its_first_lines_without_javas_stack() -> None:
    text = "boom\n\tat org.apache.Spark.run(Spark.scala:1)\n\n... 12 more\nCaused by: x\n" + "more\n" * 50
    told = translated(RuntimeError(text), where="w")
    assert type(told) is UserError
    assert told.got is not None
    assert told.got.splitlines()[0] == "boom"
    assert "at org" not in str(told)
    assert len(str(told).splitlines()) < 8


def test_a_cause_that_sparks_report_leaves_out_is_shown_first() -> None:
    error, between, first = (
        RuntimeError(text) for text in ("awaitResult:\nPlan", "awaitResult:", "too deep")
    )
    error._cause, between._cause, first._cause = between, first, None  # type: ignore[attr-defined]
    assert translated(error).got == "too deep\n    awaitResult:\n    Plan"
    repeated = RuntimeError("Job aborted: too deep")
    repeated._cause = first  # type: ignore[attr-defined]
    assert translated(repeated).got == "Job aborted: too deep"


def test_a_refusal_of_sparks_analyzer_is_an_error_of_the_operator() -> None:
    told = analysis_error(
        RuntimeError("[UNRESOLVED_COLUMN] A column `dly` cannot be resolved"), "filter (app.py:9)"
    )
    assert isinstance(told, OperatorTypeError)
    assert told.where == "filter (app.py:9)"
    inner = GraphError("mine")
    assert str(analysis_error(embedded(inner), "x")) == str(inner)
