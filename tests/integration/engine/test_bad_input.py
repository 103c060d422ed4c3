"""Bad input, bad graphs, bad functions, bad outputs: one screen, a remedy, and nothing half-written."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from harness import Harness

from drivetrain import Application, agg, sinks, sources, windows
from drivetrain.api.stream import Stream
from drivetrain.cli.failure import show_error
from drivetrain.errors import (
    DrivetrainError,
    GraphError,
    InputError,
    OperatorError,
    OperatorTypeError,
    OutputError,
    UserError,
)
from drivetrain.spark.batch.read_dead_letters import dead_letters

SCHEMA = "at timestamp, key string, n int"
GOOD = '{"at": "2024-01-01T00:00:00Z", "key": "a", "n": 1}\n'
MOST_LINES = 25
IN_PROCESS = pytest.mark.nightly("test_run_command, in its own process")


def given(drive: Harness, text: str | bytes, name: str = "a.jsonl") -> Path:
    directory = drive.directory / "in"
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return directory


def lines(drive: Harness, app: Application, text: str = GOOD, **options: Any) -> Stream[Any]:
    return app.read(sources.json(given(drive, text), schema=SCHEMA, **options))


def published(out: Path) -> list[str]:
    """What a reader of the output sees, and what was left half-written."""
    if not out.is_dir():
        return []
    left = [p.name for p in (out / "_drivetrain").rglob("*") if p.is_file() and p.name != "owner.json"]
    return left + [p.name for p in out.iterdir() if not p.name.startswith(("_", "."))]


def failure(drive: Harness, build: Callable[[Application], object], capsys: Any) -> tuple[Any, str]:
    """The error of running what `build` makes, and the screen that tells it."""

    def attempt() -> None:
        app = Application("bad")
        build(app)
        drive.run(app)

    with pytest.raises(DrivetrainError) as caught:
        attempt()
    capsys.readouterr()
    show_error(caught.value)
    screen = capsys.readouterr().err
    assert len(screen.splitlines()) <= MOST_LINES, screen
    assert not re.search(r"\bat (java|org|scala)\.|Py4J|SparkException", screen), screen
    assert "remedy: " in screen
    assert published(drive.out()) == []
    return caught.value, screen


# -- input -------------------------------------------------------------------------------------------


def test_a_missing_input_is_named(drive: Harness, capsys: Any) -> None:
    missing = drive.directory / "nothing"
    error, _ = failure(drive, lambda a: a.read(sources.text(missing)).sink(sinks.text(drive.out())), capsys)
    assert isinstance(error, InputError)
    assert error.exit_code == 2
    assert error.where == str(missing)
    assert not drive.out().exists()


def test_an_empty_directory_is_told_from_an_empty_file(drive: Harness, capsys: Any) -> None:
    empty = drive.directory / "in"
    empty.mkdir()

    def build(app: Application) -> None:
        app.read(sources.text(empty)).sink(sinks.text(drive.out()))

    error, screen = failure(drive, build, capsys)
    assert isinstance(error, InputError)
    assert "watch=True" in screen
    (empty / "empty.txt").touch()
    app = Application("empty-file")
    build(app)
    assert drive.run(app).outputs[0].messages == 0
    assert published(drive.out()) == []


@pytest.mark.parametrize(
    ("record", "column", "said"),
    [
        ('{"at": oops', None, "not valid JSON"),
        ('["a"]', None, "not a JSON object"),
        ('{"at": "2024-01-01T00:00:00Z", "key": "a", "n": "many"}', "n", '"many"'),
        ('{"at": "yesterday", "key": "a", "n": 1}', "at", '"yesterday"'),
    ],
    ids=["malformed", "no object", "wrong type", "timestamp"],
)
def test_a_record_that_cannot_be_read_is_named_by_file_line_and_column(
    drive: Harness, capsys: Any, record: str, column: str | None, said: str
) -> None:
    text = GOOD * 2 + record + "\n" + GOOD
    error, screen = failure(drive, lambda a: lines(drive, a, text).sink(sinks.json(drive.out())), capsys)
    assert isinstance(error, InputError)
    assert error.where == f"{drive.directory / 'in' / 'a.jsonl'}, line 3"
    assert said in screen
    assert column is None or f"column {column} " in error.what
    assert "dead_letter" in str(error.remedy)


def test_text_that_is_not_utf_8_is_named_by_line_and_byte(drive: Harness, capsys: Any) -> None:
    source = sources.text(given(drive, b"good\ncaf\xe9\n", "a.txt"))
    error, screen = failure(drive, lambda a: a.read(source).sink(sinks.text(drive.out())), capsys)
    assert isinstance(error, InputError)
    assert "line 2" in str(error.where)
    assert "0xe9" in screen


def test_records_set_aside_are_counted_and_kept_with_file_and_line(drive: Harness) -> None:
    text = GOOD + "{oops\n" + GOOD.replace(": 1}", ': "many"}') + GOOD
    app = Application("aside")
    lines(drive, app, text, on_bad_record="dead_letter").sink(sinks.json(drive.out()))
    result = drive.run(app)
    assert result.outputs[0].messages == 2
    assert result.dead_lettered == 2
    letters = dead_letters(app, drive.config()).to_pylist()
    assert [(Path(letter["file"]).name, letter["line"]) for letter in letters] == [
        ("a.jsonl", 2),
        ("a.jsonl", 3),
    ]
    assert "{oops" in letters[0]["message"]


def test_a_schema_that_cannot_be_read_is_shown(drive: Harness, capsys: Any) -> None:
    source = sources.json(given(drive, GOOD), schema="at timestmp, key")
    error, _ = failure(drive, lambda a: a.read(source).sink(sinks.json(drive.out())), capsys)
    assert error.got == "at timestmp, key"


def test_a_csv_header_without_a_declared_column_is_refused(drive: Harness, capsys: Any) -> None:
    source = sources.csv(given(drive, "a,b\n1,2\n", "a.csv"), schema="a int, c int")
    error, _ = failure(drive, lambda a: a.read(source).sink(sinks.json(drive.out())), capsys)
    assert "no column c" in error.what


def test_a_file_that_is_not_parquet_is_named(drive: Harness, capsys: Any) -> None:
    source = sources.parquet(given(drive, "these are no columns", "a.parquet"))
    error, _ = failure(drive, lambda a: a.read(source).sink(sinks.json(drive.out())), capsys)
    assert str(error.where).endswith("a.parquet")


# -- output ------------------------------------------------------------------------------------------


def test_an_output_that_cannot_be_written_is_found_before_anything_runs(drive: Harness, capsys: Any) -> None:
    drive.out().write_text("in the way")
    deeper = drive.out() / "deeper"
    error, _ = failure(drive, lambda a: lines(drive, a).sink(sinks.json(deeper)), capsys)
    assert isinstance(error, OutputError)
    assert drive.out().read_text() == "in the way"


def test_a_directory_with_other_files_is_left_alone(drive: Harness) -> None:
    drive.out().mkdir()
    (drive.out() / "thesis.txt").write_text("precious")
    app = Application("strangers")
    lines(drive, app).sink(sinks.json(drive.out()))
    with pytest.raises(OutputError, match="not empty"):
        drive.run(app, fresh=True)
    assert [p.name for p in drive.out().iterdir()] == ["thesis.txt"]


def test_two_sinks_on_one_directory_are_refused_however_it_is_spelled(drive: Harness, capsys: Any) -> None:
    def build(app: Application) -> None:
        stream = lines(drive, app)
        stream.sink(sinks.json(drive.out()), name="one")
        stream.sink(sinks.csv(f"{drive.directory}/in/../out/"), name="two")

    error, screen = failure(drive, build, capsys)
    assert isinstance(error, GraphError)
    assert "one" in screen
    assert "two" in screen


def test_a_deleted_state_never_makes_results_disappear(drive: Harness) -> None:
    def build(text: str) -> Application:
        app = Application("lost")
        lines(drive, app, text).sink(sinks.json(drive.out()))
        return app

    drive.run(build(GOOD))
    first = [p.read_text() for p in drive.out().glob("*.json")]
    for path in (drive.directory / "state").glob("lost-*"):
        path.rename(drive.directory / "elsewhere")
    with pytest.raises(OutputError, match="state is gone") as caught:
        drive.run(build(GOOD * 3))
    assert "--fresh" in str(caught.value.remedy)
    assert [p.read_text() for p in drive.out().glob("*.json")] == first
    drive.run(build(GOOD * 3), fresh=True)
    assert sum(len(p.read_text().splitlines()) for p in drive.out().glob("*.json")) == 3


# -- graphs ------------------------------------------------------------------------------------------


def windowed(stream: Stream[Any], key: str) -> Any:
    return stream.event_time("at").group_by(key).window(windows.tumbling("1 min"))


@pytest.mark.parametrize(
    ("use", "column"),
    [
        (lambda s: s.filter("m > 3"), "m"),
        (lambda s: s.select("kee"), "kee"),
        (lambda s: s.event_time("att"), "att"),
        (lambda s: windowed(s, "kez").count(), "kez"),
        (lambda s: windowed(s, "key").aggregate(total=agg.sum("nn")), "nn"),
    ],
    ids=["filter", "select", "event_time", "group_by", "aggregate"],
)
def test_an_unknown_column_is_answered_with_the_known_ones(
    drive: Harness, capsys: Any, use: Callable[[Stream[Any]], Stream[Any]], column: str
) -> None:
    error, _ = failure(drive, lambda a: use(lines(drive, a)).sink(sinks.json(drive.out())), capsys)
    assert isinstance(error, OperatorTypeError)
    assert error.exit_code == 2
    assert f"no column {column!r}" in error.what
    assert Path(__file__).name in str(error.where)
    assert all(known in str(error.expected) for known in ("at", "key", "n"))
    assert "__" not in str(error.expected)


def test_an_expression_that_only_spark_can_refuse_is_shown(drive: Harness, capsys: Any) -> None:
    build = lambda a: lines(drive, a).filter("at > DATE 'today?'").sink(sinks.json(drive.out()))  # noqa: E731
    error, screen = failure(drive, build, capsys)
    assert isinstance(error, OperatorTypeError)
    assert "DATE" in screen
    assert "'today?'" in screen


def test_a_cycle_is_shown_as_its_ring(drive: Harness, capsys: Any) -> None:
    from drivetrain import Processor, Task

    class Pass(Task):
        def on_next(self, message: Any) -> list[int]:
            return [1]

    def build(app: Application) -> None:
        first, second = Processor(Pass, name="first"), Processor(Pass, name="second")
        app.connect(first, second)
        app.connect(second, first)

    error, screen = failure(drive, build, capsys)
    assert isinstance(error, GraphError)
    assert "first" in screen
    assert "second" in screen


def test_a_processor_that_leads_nowhere_is_named(drive: Harness, capsys: Any) -> None:
    def build(app: Application) -> None:
        stream = lines(drive, app)
        stream.sink(sinks.json(drive.out()))
        stream.filter("n > 1", name="forgotten")

    error, _ = failure(drive, build, capsys)
    assert isinstance(error, GraphError)
    assert "forgotten" in str(error.where)


def test_a_processor_without_input_is_named(drive: Harness, capsys: Any) -> None:
    from drivetrain import Processor, Task

    class Pass(Task):
        def on_next(self, message: Any) -> list[int]:
            return [1]

    def build(app: Application) -> None:
        lines(drive, app).sink(sinks.json(drive.out()))
        app.connect(Processor(Pass, name="island"), Processor(sinks.none(), name="shore"))

    error, _ = failure(drive, build, capsys)
    assert isinstance(error, GraphError)
    assert "island" in str(error.where)


def test_one_name_for_two_processors_is_refused_with_both_places(drive: Harness, capsys: Any) -> None:
    def build(app: Application) -> None:
        stream = lines(drive, app)
        stream.filter("n > 0", name="same").sink(sinks.json(drive.out()))
        stream.filter("n < 0", name="same").sink(sinks.json(drive.out("other")))

    error, screen = failure(drive, build, capsys)
    assert isinstance(error, GraphError)
    assert screen.count(Path(__file__).name) == 2


def test_a_window_without_event_time_is_refused(drive: Harness, capsys: Any) -> None:
    def build(app: Application) -> None:
        lines(drive, app).group_by("key").window(windows.tumbling("1 min")).count().sink(sinks.none())

    error, _ = failure(drive, build, capsys)
    assert "event_time" in str(error.remedy)


# -- functions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [threading.Lock, socket.socket], ids=["lock", "socket"])
def test_a_function_that_cannot_be_sent_is_told_with_what_it_holds(
    drive: Harness, capfd: Any, make: Callable[[], Any]
) -> None:
    held = make()
    build = lambda a: lines(drive, a).map(lambda row: str(held), returns=str).sink(sinks.none())  # noqa: E731
    error, _ = failure(drive, build, capfd)
    assert isinstance(error, GraphError)
    assert str(error.got).startswith("held: cannot pickle")


def divide(row: Any) -> int:
    return 10 // (row.n - 1)


def test_a_function_that_raises_is_told_with_its_own_traceback_and_message(
    drive: Harness, capsys: Any
) -> None:
    build = lambda a: lines(drive, a).map(divide).sink(sinks.json(drive.out()))  # noqa: E731
    error, screen = failure(drive, build, capsys)
    assert isinstance(error, OperatorError)
    assert error.exit_code == 3
    assert "ZeroDivisionError" in error.what
    assert "n=1" in str(error.message)
    assert "return 10 // (row.n - 1)" in screen
    assert "site-packages" not in screen


@pytest.mark.nightly("test_secrets reaches what it reaches")
def test_a_run_whose_function_was_corrected_goes_on(drive: Harness) -> None:
    def build(function: Callable[[Any], int]) -> Application:
        app = Application("corrected")
        lines(drive, app).map(function, name="divide", returns=int).sink(sinks.json(drive.out()))
        return app

    with pytest.raises(OperatorError):
        drive.run(build(divide))
    assert published(drive.out()) == []
    drive.run(build(lambda row: 10 // row.n))
    assert len(published(drive.out())) == 1


def test_an_expression_that_fails_on_a_row_is_told_without_java(drive: Harness, capsys: Any) -> None:
    build = lambda a: lines(drive, a).select(x="cast(key as int)").sink(sinks.json(drive.out()))  # noqa: E731
    error, _ = failure(drive, build, capsys)
    assert isinstance(error, UserError)
    assert "'a'" in str(error.got)


# -- the command line --------------------------------------------------------------------------------

HEAD = """
from drivetrain import Application, sinks, sources
app = Application("command")
out = app.setting("output")
"""
MAPPED = """
def boom(row) -> int:
    return 1 // 0
app.read(sources.json(app.setting("input"), schema="n int")).map(boom).sink(sinks.json(out))
"""
ASIDE = """
stream = app.read(sources.json(app.setting("input"), schema="n int", on_bad_record="dead_letter"))
stream.log(name="seen").sink(sinks.json(out))
"""


def command(
    tmp_path: Path, text: str, *arguments: str, verb: str = "run"
) -> subprocess.CompletedProcess[str]:
    app = tmp_path / "app.py"
    app.write_text(HEAD + text)
    inputs = tmp_path / "in"
    inputs.mkdir(exist_ok=True)
    (inputs / "a.jsonl").write_text('{"n": 1}\n{oops\n')
    line = [
        sys.executable, "-m", "drivetrain.cli", verb, str(app), "--set", f"input={inputs}",
        "--set", f"output={tmp_path / 'out'}", "--state-dir", str(tmp_path / "state"),
        "--set", "spark.driver-memory=1 GiB", "--set", "spark.master=local[2]", *arguments,
    ]  # fmt: skip
    return subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)


def unexpected(stderr: str) -> list[str]:
    """Lines that are neither progress, nor the error, nor Java's remarks on modules and options."""
    start = stderr.find("error: ")
    before = stderr if start < 0 else stderr[:start]
    known = ("[", "WARNING: Using incubator modules", "NOTE: Picked up JDK_JAVA_OPTIONS", "seen ")
    return [line for line in before.splitlines() if not line.startswith(known)]


@pytest.mark.nightly("test_run_command; test_a_failing_function_stops_the_application")
def test_a_function_that_raises_ends_the_command_with_3_and_one_screen(tmp_path: Path) -> None:
    done = command(tmp_path, MAPPED.replace('schema="n int"', 'schema="n int", on_bad_record="dead_letter"'))
    assert done.returncode == 3, done.stderr
    assert unexpected(done.stderr) == []
    screen = done.stderr[done.stderr.index("error: ") :]
    assert len(screen.splitlines()) <= MOST_LINES
    assert "return 1 // 0" in screen
    assert "remedy: " in screen
    assert published(tmp_path / "out") == []


@pytest.mark.nightly("test_dead_letters, and records set aside, above")
def test_logged_messages_appear_and_dead_letters_can_be_shown(tmp_path: Path) -> None:
    done = command(tmp_path, ASIDE)
    assert done.returncode == 0, done.stderr
    assert unexpected(done.stderr) == []
    assert "seen {'n': 1}" in done.stderr
    assert len(published(tmp_path / "out")) == 1
    shown = command(tmp_path, ASIDE, "--json", verb="dead-letters")
    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)
    assert told["count"] == 1
    assert told["dead_letters"][0]["line"] == 2


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (MAPPED, ("--set", "spark.mastr=local[2]"), "spark.master"),
        pytest.param(MAPPED, ("--set", "outptu=x"), "output", marks=IN_PROCESS),
        pytest.param(
            "import nothing_of_this_name\n", (), "No module named 'nothing_of_this_name'", marks=IN_PROCESS
        ),
        pytest.param("raise ValueError('in the file')\n", (), "in the file", marks=IN_PROCESS),
        ("def (:\n", (), "SyntaxError"),
    ],
    ids=["unknown key", "unknown setting", "no module", "raises", "syntax"],
)
def test_what_is_wrong_before_spark_starts_is_told_without_it(
    tmp_path: Path, text: str, arguments: tuple[str, ...], said: str
) -> None:
    done = command(tmp_path, text, *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    assert len(done.stderr.splitlines()) <= MOST_LINES
    assert said in done.stderr
    assert "remedy: " in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("event_time", [None, "at"])
def test_rows_of_an_iterable_that_do_not_fit_go_to_the_dead_letters(
    drive: Harness, event_time: str | None
) -> None:
    rows = [(datetime(2024, 1, 1, tzinfo=UTC), "a", n) for n in range(50)]
    given_rows: list[object] = [*rows[:7], ("yesterday", "a", 1), *rows[7:], (rows[0][0], "a")]
    app = Application("items")
    read = app.read(
        sources.items(
            given_rows, SCHEMA, event_time=event_time, max_disorder="0 s" if event_time else None,
            on_bad_record="dead_letter",
        ),
        name="read",
    )  # fmt: skip
    read.sink(sinks.parquet(drive.out("each")), name="each")
    counts = read.group_by("key").aggregate(step="count", n=agg.count())
    counts.sink(sinks.parquet(drive.out("counts")), name="counts")
    result = drive.run(app)
    assert sorted(row["n"] for row in drive.rows("each")) == list(range(50))
    assert [(row["key"], row["n"]) for row in drive.rows("counts")] == [("a", 50)]
    letters = dead_letters(app, drive.config()).to_pylist()
    assert result.dead_lettered == 2
    assert [letter["line"] for letter in letters] == [8, 52]
    assert all(letter["operator"].startswith("read ") for letter in letters)
    assert "'yesterday', 'a', 1" in letters[0]["message"]
    assert "expected 3 values" in letters[1]["error"]
