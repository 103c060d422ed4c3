"""Text of users in every view: shown as it stands; it commands no terminal and breaks no table."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from rich.cells import cell_len
from scripted_cluster import world

from drivetrain import cli
from drivetrain.api.graphs.graph import Graph
from drivetrain.cli import failure, settings
from drivetrain.cli.changes import comparison, version_difference, versions
from drivetrain.cli.checks import doctor
from drivetrain.cli.checks.finding import Finding, Verdict
from drivetrain.cli.clusters import apps, logs
from drivetrain.cli.consoles import console_access
from drivetrain.cli.inspection import console_queries, dead_letters, explain, late_messages, plan, show, state
from drivetrain.cli.views import run_summary
from drivetrain.cli.views.channel_view import channels_of
from drivetrain.cli.views.run_view import LineView, LiveView
from drivetrain.cluster.client import Piece
from drivetrain.cluster.client.cluster_situation import situation_of
from drivetrain.cluster.messages.applications import ApplicationState, ApplicationSummary, WorkerView
from drivetrain.cluster.messages.following import ErrorView, ExecutorView, FragmentView, OutputView
from drivetrain.config import Config
from drivetrain.config.references import ScrubbingFormatter
from drivetrain.connectors.in_process.plain_sinks import show_batch
from drivetrain.console.answers import states as console_states
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_stages import ChangeStage
from drivetrain.core.change.difference import Change, ChangeKind, Difference
from drivetrain.core.change.graph_version import GraphVersion, ProcessorRecord
from drivetrain.core.change.version_comparison import ComparedProcessor, Mark, VersionComparison
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointDone, CheckpointFailure, CheckpointFigures
from drivetrain.core.checkpoint.transaction import Action, Phase
from drivetrain.core.diagnosis.diagnosis import diagnose
from drivetrain.core.job.fragment_figures import Counters, FragmentFigures, LastBatch, Phases
from drivetrain.core.job.run_progress import (
    CheckpointsProgressed,
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    NoticeGiven,
    OutputResult,
    ProcessorResult,
    RunOutcome,
    RunResult,
    RunStarted,
)
from drivetrain.core.plan.plan import Fragment, Obstacle, Plan, PlannedChannel, PlannedOperator, PlannedSink
from drivetrain.errors import OperatorError, UserError
from drivetrain.runtime.graph_versions import Ending
from drivetrain.runtime.late_samples import LateMessage
from drivetrain.runtime.version_history import Trial, VersionSummary
from drivetrain.spark.state.state_query import StateEntry, States
from drivetrain.terminal import Console, Table, Text, print_line, printable
from nightly_run import is_nightly

SHORT = {
    "markup": "[/10.0.0.7:9092] [bold]hello[/bold] [red] [/x]",
    "emoji name": ":warning: :smile:",
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "clear": "\x1b[2J\x1b[H\x9b2J",
    "backspace": "password\b\b\b\b",
    "return": "old\rnew",
    "direction": "abc\u202egnp.exe",
    "half a character": "a\ud800b",
    "wide": "漢字かな交じり文",
    "combining": "e\u0301\u0302\u0303 नमस्ते 👩‍👩‍👧‍👦",
    "nothing": "",
    "lines": "one\ntwo\r\nthree\u2028four",
}
LONG = {
    "long": "x" * 30_000,
    "long and wide": "漢" * 30_000,
    "words": "[/x] [red] " * 5_000,
    "combining without end": "a" + "\u0301" * 30_000,
    "many lines": "line\n" * 5_000,
}
HOSTILE = {**SHORT, **LONG}
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
NUMBER = 1_234_567


def channel(text: str) -> ChannelProgress:
    return ChannelProgress(text, text, text, None, NUMBER, 9, losses=2, blocked_ms=5)


def figures_of(text: str) -> FragmentFigures:
    last = LastBatch(1, NUMBER, Phases(sink_ms=90_000), {text: 90_000})
    return FragmentFigures(
        Counters(3, blocked_ms={text: 5}),
        last,
        state_bytes=NUMBER,
        latency_p50_ms=1,
        latency_p99_ms=2,
        partition_rows={text: NUMBER, "other": 1},
        silent_partitions=(text,),
    )


def error_of(text: str) -> ErrorView:
    return ErrorView(text, text, text, text, text, text, user_traceback=text)


def checkpoints(text: str) -> CheckpointFigures:
    done = CheckpointDone(7, None, 0, 1, 1, {text: 1})
    return CheckpointFigures(
        7, Phase.COMMITTED, False, None, 1, 1, done, (CheckpointFailure(6, Action.PREPARE, 0, (text,), text),)
    )


def progressed(text: str) -> FragmentProgressed:
    return FragmentProgressed(
        text, 1, NUMBER, 1.0, 1, channels=(channel(text),), stalled_ms=5, waiting_for=text, blocked_by=text
    )


def view_of(text: str) -> Any:
    spec = msgspec.structs.replace(
        world.SPEC, name=text, file=text, target=text, code=text, settings={text: text}
    )
    return world.view_of(text, spec=spec, epoch=1, worker="w-id", why=text)


def status_of(text: str) -> Any:
    fragment = FragmentView(text, text, 1, text, text, 3, NUMBER, 1.0, 1, channels=(channel(text),))
    fragment = msgspec.structs.replace(fragment, figures=figures_of(text))
    return world.status_of(
        fragments=(fragment,),
        executors=(ExecutorView(text, text, text, 1, 2, text, text),),
        outputs=(OutputView(text, text, NUMBER, text),),
        counts={text: (NUMBER, NUMBER, NUMBER, NUMBER)},
        accumulators={text: NUMBER, text + "f": 1.5},
        waiting_for=text,
        change=text,
        checkpoints=checkpoints(text),
    )


WORKERS = (WorkerView("w-id", "w", "h", 1, 1, 0),)


def show_apps(text: str, console: Console) -> None:
    worker = WorkerView("w-id", text, text, 1, 1, 0)
    line = ApplicationSummary(text, text, ApplicationState.ACTIVE, 1, 0, worker="w-id", why=text, file=text)
    apps.show_applications([line], [worker], console)


def show_all(view: Any, status: Any, console: Console) -> None:
    findings = diagnose(situation_of(view, status, WORKERS))
    show.show_application(view, status, WORKERS, console, findings)
    explain.show_findings(findings, console)


def show_status(text: str, console: Console) -> None:
    show_all(view_of(text), status_of(text), console)


def show_errors(text: str, console: Console) -> None:
    status = status_of(text)
    stalled = msgspec.structs.replace(
        status.fragments[0], state="running", stalled_ms=9, waiting_for=text, blocked_by=text
    )
    status = msgspec.structs.replace(status, fragments=(stalled,), errors=(error_of(text),), printed=text)
    show_all(view_of("wc"), status, console)


def show_channels(text: str, console: Console) -> None:
    shown = channels_of((progressed(text),), console.width)
    assert shown is not None
    console.print(shown)


def show_plan(text: str, console: Console) -> None:
    fragments = tuple(Fragment(id, (), (id,), (), None) for id in (text, f"{text}2"))
    planned = Plan(
        application=text,
        graph=Graph("shop", {}),
        fragments=fragments,
        channels=(PlannedChannel(text, text, text, f"{text}2", text),),
        operators={
            fragment.id: PlannedOperator(fragment.id, text, "native", text, text, text, columns=text)
            for fragment in fragments
        },
        sinks=(PlannedSink(text, text, text, text),),
        guarantee=text,
        bounded=True,
        obstacles={fragment.id: (Obstacle(text, text),) for fragment in fragments},
        latency="real-time",
    )
    plan.show_plan(planned, console)


def changed(text: str) -> Difference:
    return Difference(tuple(Change(text, fate, text, text, f"{text}2") for fate in ChangeKind))


def show_compared(text: str, console: Console) -> None:
    old = GraphVersion(text, {}, {})
    comparison.show_comparison(comparison.Comparison(text, old, old, changed(text)), console)


def show_between(text: str, console: Console) -> None:
    record = ProcessorRecord(text, text, text, text, (text,), text)
    old, new = (GraphVersion(text, {}, {}, number=n, made_by=text) for n in (1, 2))
    every = tuple(ComparedProcessor(text, mark, text, record, record, text, f"{text}2") for mark in Mark)
    version_difference.show(VersionComparison(old, new, every), None, console)


def show_late(text: str, console: Console) -> None:
    late = LateMessage(
        number=1, processor=text, message=text, is_cut=False, timestamp_ms=0, clock_ms=1, batch=1, stored_ms=0
    )
    late_messages.show_late([((0, text, 1), late)], console)


def show_states_of_a_console(text: str, console: Console) -> None:
    one = console_states.StateEntry(key=text, value=text, start_ms=0, end_ms=1, is_cut=False)
    times: dict[str, Any] = dict.fromkeys(("at_ms", "clock_ms", "first_ms", "last_ms", "step_ms"))
    console_queries.show_states(
        console_states.StateEntries(processor=text, count=1, states=(one,), **times), console
    )


def show_versions_of(text: str, console: Console) -> None:
    record = GraphVersion(text, {}, {}, number=1, made_by=text, at_ms=0)
    ending = Ending(Outcome.ROLLED_BACK, 0, text, text, leaving={text: "drains"})
    stages = (ChangeStage("compiled", 0, text),)
    known = VersionSummary(record, changed(text), ending, True, Trial.INTERRUPTED, stages, text)
    versions.show_versions([known], console)


def show_entries(text: str, console: Console) -> None:
    console_access.show_entries([{"name": text, "kind": "user", "role": "admin"}], console)


def show_summary(text: str, console: Console) -> None:
    result = RunResult(
        text,
        RunOutcome.FINISHED,
        1,
        (ProcessorResult(text, NUMBER, NUMBER, NUMBER, NUMBER),),
        (OutputResult(text, text, NUMBER, text),),
        accumulators={text: NUMBER},
        fragments=(progressed(text),),
    )
    run_summary.show_summary(result, console)


def show_state(text: str, console: Console) -> None:
    found = [StateEntry(text, text, (0, 1)), StateEntry((text, 1), {text: text}, (0, 1))]

    class Answers:
        processor = text

        def clock_ms(self) -> int:
            return 0

    state.show(cast(States, Answers()), found, text, 50, console)


def show_letters(text: str, console: Console) -> None:
    letter = {"operator": text, "message": text, "file": text, "line": 1, "error": text}
    dead_letters.show_letters([letter], 1, 0, console)


def show_findings(text: str, console: Console) -> None:
    doctor.show_findings([Finding(text, verdict, text, text) for verdict in Verdict], console)


def show_settings(text: str, console: Console) -> None:
    settings.show_settings(Config.load(None, {}, {"cluster.secret-file": text}), console)


def show_live(text: str, console: Console) -> None:
    view = LiveView(console, redirect_stdout=False)
    with view.showing():
        view.on_event(RunStarted(text, (text,)))
        view.on_event(progressed(text))
        view.on_event(CheckpointsProgressed(checkpoints(text)))


def live_lines(text: str, console: Console) -> None:
    view = LiveView(console, redirect_stdout=False)
    view.on_event(NoticeGiven(text))
    view.on_event(FragmentStateChanged(text, FragmentState.FAILED, text))


def show_lines(text: str, console: Console) -> None:
    view = LineView(console.file, 0)
    view.on_event(RunStarted(text, (text,)))
    view.on_event(progressed(text))
    view.on_event(CheckpointsProgressed(checkpoints(text)))
    view.on_event(NoticeGiven(text))
    view.on_event(FragmentStateChanged(text, FragmentState.FAILED, text))


def show_batch_of(text: str, console: Console) -> None:
    text = in_arrow(text)
    show_batch(pa.table({"value": [text, None], f"n {text}": [text, text]}), text, 1, console)


def show_wide_batch(text: str, console: Console) -> None:
    text = in_arrow(text)
    show_batch(pa.table({f"{number} {text}": [text] for number in range(11)}), text, 1, console)


def in_arrow(text: str) -> str:
    return text.replace("\ud800", "\\ud800")  # Arrow has no half characters


def show_failure(text: str, console: Console) -> None:
    failure.show_error(UserError(text, where=text, expected=text, got=text, remedy=text), console)
    error = OperatorError(text, operator=text, message=text, user_traceback=text, remedy=text)
    failure.show_error(error, console)


def show_bug(text: str, console: Console) -> None:
    failure.show_bug(ValueError(text), console)


def show_logs(text: str, console: Console) -> None:
    with contextlib.redirect_stdout(console.file):
        logs.show_pieces([Piece(text, text, text.encode("utf-8", "replace"))], prefixed=True)


TABLES: list[Callable[[str, Console], None]] = [
    show_apps,
    show_status,
    show_channels,
    show_plan,
    show_summary,
    show_state,
    show_letters,
    show_findings,
    show_live,
    show_batch_of,
    show_wide_batch,
    show_entries,
    show_compared,
    show_between,
    show_late,
    show_states_of_a_console,
    show_versions_of,
]
ELSEWHERE = {"figures_view", "local"}
"""Modules whose tables are part of those of `show`, or have no text of users."""
LINES: list[Callable[[str, Console], None]] = [
    show_errors,
    show_settings,
    live_lines,
    show_lines,
    show_failure,
    show_bug,
    show_logs,
]


def test_every_module_that_makes_a_table_is_looked_at() -> None:
    source = Path(__file__).read_text()
    folder = Path(cli.__file__).parent
    made = {file.stem for file in folder.rglob("*.py") if re.search(r"\bTable\(", file.read_text())}
    looked_at = {name for name in made if re.search(rf"\b{name}\.|\.{name} import", source)}
    assert made - looked_at == ELSEWHERE


def pairs(views: list[Any], names: Mapping[str, str]) -> list[tuple[Any, str]]:
    """Every view with every name in the nightly run; in others three names for each view."""
    all_names = list(names)
    if is_nightly():
        return [(view, name) for view in views for name in all_names]
    assert 3 * len(views) >= len(all_names)
    taken = itertools.cycle(all_names)
    return [(view, next(taken)) for view in views for _ in range(3)]


def shown(view: Callable[[str, Console], None], text: str, width: int, *, terminal: bool = False) -> str:
    output = io.StringIO()
    options = {"force_terminal": True, "color_system": None} if terminal else {}
    view(text, Console(file=output, width=width, **options))
    return output.getvalue()


@pytest.mark.parametrize(("view", "name"), pairs(TABLES + LINES, SHORT))
def test_short_text_is_shown_as_it_stands_and_commands_nothing(view: Any, name: str) -> None:
    for width in (30, 400):
        printed = shown(view, SHORT[name], width)
        assert RAW.search(printed) is None
    assert all(line in printed for line in printable(SHORT[name]).splitlines())


@pytest.mark.parametrize(("view", "name"), pairs(TABLES, HOSTILE))
def test_no_text_makes_a_table_wider_than_the_terminal_or_endless(view: Any, name: str) -> None:
    for width in (30, 80) if name in SHORT else (80,):
        lines = shown(view, HOSTILE[name], width).splitlines()
        assert max(map(cell_len, lines), default=0) <= width
        assert len(lines) < 15_000


@pytest.mark.parametrize("view", [show_status, show_summary])
@pytest.mark.parametrize("name", LONG)
def test_figures_are_whole_beside_long_names(view: Any, name: str) -> None:
    assert "1,234,567" in shown(view, LONG[name], 80)


@pytest.mark.parametrize("view", [show_live, live_lines])
@pytest.mark.parametrize("name", SHORT)
def test_on_a_terminal_only_the_table_itself_moves_the_cursor(view: Any, name: str) -> None:
    ours = re.compile(r"\x1b\[(\?25[lh]|2K|1A|[0-9]*[ABCDGH])|\r")
    printed = ours.sub("", shown(view, SHORT[name], 80, terminal=True))
    assert RAW.search(printed) is None


def test_a_cell_says_how_much_it_leaves_out() -> None:
    table = Table("value")
    table.add_row("x" * 3_000)
    table.add_row(Text("y\n" * 50, "red"))
    output = io.StringIO()
    Console(file=output, width=100).print(table)
    assert "(1,000 more characters)" in output.getvalue()
    assert output.getvalue().count("y") == 40
    assert "(21 more characters)" in output.getvalue()


def test_lines_and_log_records_are_printable() -> None:
    output = io.StringIO()
    print_line("[/x]\x1b[31m\ta\nb", output)
    assert output.getvalue() == "[/x]\\x1b[31m\ta\nb\n"
    record = logging.LogRecord("d", logging.INFO, "", 0, "from %s", ("\x1b]0;x\x07",), None)
    assert ScrubbingFormatter("%(message)s").format(record) == "from \\x1b]0;x\\x07"
