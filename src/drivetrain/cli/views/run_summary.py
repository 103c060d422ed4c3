"""The summary of a run at its end: tables for terminals, one JSON object for programs.

Called by `drivetrain run`. The object's fields are stable: programs read them.
"""

from __future__ import annotations

from typing import Final

from drivetrain.cli.json_output import as_data
from drivetrain.core.figures import show_clock, show_count, show_counted, show_rate, show_span
from drivetrain.core.job.run_progress import RunOutcome, RunResult
from drivetrain.terminal import Console, Table, Text

_SENTENCES: Final = {
    RunOutcome.FINISHED: ("finished", "bold green"),
    RunOutcome.STOPPED: ("stopped; the same command resumes it", "bold yellow"),
    RunOutcome.ALREADY_FINISHED: (
        "had finished in an earlier run: there was nothing to do (--fresh starts over)",
        "bold green",
    ),
}


def show_summary(result: RunResult, console: Console) -> None:
    """Print the outcome, messages in and out per processor, and the output of each sink."""
    sentence, style = _SENTENCES[result.outcome]
    if result.outcome is RunOutcome.STOPPED and result.replay_from_ms is not None:
        sentence += " (without --replay-from, which would begin again)"
    console.print(Text.assemble((result.application, "bold"), " ", (sentence, style)))
    if result.outcome is RunOutcome.ALREADY_FINISHED:
        return
    console.print(_processors(result))
    if result.outputs:
        console.print(_outputs(result))
    taken = sum(processor.messages_out for processor in result.processors if processor.is_source)
    rate = show_rate(taken * 1000 / result.duration_ms) if result.duration_ms else "–"
    console.print(
        f"{show_count(taken)} messages in {show_span(result.duration_ms)} ({rate}), "
        f"{show_counted(result.batches, 'batch', 'batches')}, "
        f"clock {show_clock(result.clock_ms)}",
    )
    if result.replay_from_ms is not None:
        console.print(
            f"life {result.life}, replayed from {show_clock(result.replay_from_ms)}: "
            f"{show_counted(result.skipped, 'older message')} skipped",
        )
    for name, value in result.accumulators.items():
        shown = show_count(value) if isinstance(value, int) else f"{value:,.6g}"
        console.print(f"{name}: {shown}")
    channels = [channel for fragment in result.fragments for channel in fragment.channels]
    if losses := sum(channel.losses for channel in channels):
        replays = show_counted(sum(channel.replays for channel in channels), "replay")
        console.print(
            Text(f"{show_counted(losses, 'loss', 'losses')} found in channels, {replays}", "bold yellow"),
        )
    if result.lost:
        loss = f"{show_counted(result.lost, 'message')} gone before the sources read them"
        console.print(Text(loss, "bold yellow"))
    if result.dead_lettered:
        console.print(
            Text(f"{show_count(result.dead_lettered)} messages are in the dead letters", "bold yellow"),
        )


def result_as_data(result: RunResult) -> dict[str, object]:
    """The result for `--json`: the fields of `RunResult`, and the sums of late and dead-lettered messages."""
    return {
        **as_data(result),
        "late": result.late,
        "dead_lettered": result.dead_lettered,
    }


def _processors(result: RunResult) -> Table:
    table = Table()
    table.add_names("processor")
    for heading in ("in", "out", "late", "dead-lettered"):
        table.add_column(heading, justify="right", no_wrap=True)
    for processor in result.processors:
        table.add_row(
            processor.processor,
            show_count(processor.messages_in),
            show_count(processor.messages_out),
            _marked(processor.late),
            _marked(processor.dead_lettered),
        )
    return table


def _outputs(result: RunResult) -> Table:
    table = Table()
    table.add_names("output")
    table.add_column("messages", justify="right", no_wrap=True)
    table.add_column("where", overflow="fold")
    table.add_column("guarantee", no_wrap=True)
    for output in result.outputs:
        table.add_row(output.processor, show_count(output.messages), output.target, output.guarantee)
    return table


def _marked(count: int) -> Text:
    return Text(show_count(count), style="bold yellow" if count else "dim")
