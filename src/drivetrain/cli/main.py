"""The `drivetrain` command.

Design: one module per command; this one joins them and is the single place where an error becomes a message
on the standard error stream and an exit code. An error that Drivetrain raised on purpose is shown without a
traceback, because its message includes a remedy; for an error in the user's code the user's own traceback is
shown; any other error is a bug and is shown with its traceback.

Exit codes (also in `drivetrain --help` and the guide):

    0    done
    1    `doctor` found something that is missing
    2    the application, the command or the configuration must be changed
    3    a function of the application raised while it processed a message
    4    something is unavailable right now; trying again may help
    5    the other side of a connection broke the protocol
    70   a bug in Drivetrain
    130  stopped by Ctrl-C
    143  stopped by a termination signal
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import drivetrain
from drivetrain.cli import savepoint, settings
from drivetrain.cli.changes import attach, remove, replace, rollback, scale, unsubscribe, update, versions
from drivetrain.cli.checks import doctor, warm_up
from drivetrain.cli.clusters import (
    apps,
    cluster_commands,
    key,
    kill,
    local,
    logs,
    replay,
    restart,
    submit,
    wait,
)
from drivetrain.cli.consoles import console, console_access
from drivetrain.cli.failure import show_bug, show_error
from drivetrain.cli.inspection import dead_letters, explain, late_messages, plan, show, state
from drivetrain.cli.projects import init
from drivetrain.cli.running import compact, run
from drivetrain.cli.running.stop import EXIT_INTERRUPTED
from drivetrain.durable import disk_full, is_full
from drivetrain.errors import DrivetrainError, InternalError
from drivetrain.terminal import print_line

_EXIT_CODES = (
    "Exit codes: 0 done, 1 doctor found something missing, 2 the application, the command or the "
    "configuration must "
    "be changed, 3 a function of the application raised, 4 something is not there right now, 5 a "
    "connection's other "
    "side broke the protocol, 70 a bug in Drivetrain, 130 stopped by Ctrl-C, 143 stopped by a "
    "termination signal."
)


class _Commands(TyperGroup):
    """Turns every error of every command into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DrivetrainError as error:
            show_error(error)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as interrupt:
            print_line("interrupted", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from interrupt
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:  # the last resort: any other error is a bug
            if type(error).__module__.startswith(("typer", "click")):
                raise  # a usage error, which typer shows itself
            if is_full(error):
                full = disk_full(error, "what this command writes", getattr(error, "filename", None))
                show_error(full)
                raise typer.Exit(full.exit_code) from error
            show_bug(error)
            raise typer.Exit(InternalError.exit_code) from error


app = typer.Typer(
    name="drivetrain",
    cls=_Commands,
    help="Streaming applications on Apache Spark, in Python.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print_line(f"drivetrain {drivetrain.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop."),
    ] = False,
) -> None:
    """Streaming applications on Apache Spark, in Python."""


_commands: tuple[tuple[str, Callable[..., None]], ...] = (
    ("init", init.init_command),
    ("run", run.run_command),
    ("plan", plan.plan_command),
    ("submit", submit.submit_command),
    ("apps", apps.apps_command),
    ("show", show.show_command),
    ("explain", explain.explain_command),
    ("state", state.state_command),
    ("logs", logs.logs_command),
    ("wait", wait.wait_command),
    ("kill", kill.kill_command),
    ("restart", restart.restart_command),
    ("replay", replay.replay_command),
    ("savepoint", savepoint.savepoint_command),
    ("update", update.update_command),
    ("attach", attach.attach_command),
    ("replace", replace.replace_command),
    ("remove", remove.remove_command),
    ("rollback", rollback.rollback_command),
    ("scale", scale.scale_command),
    ("versions", versions.versions_command),
    ("unsubscribe", unsubscribe.unsubscribe_command),
    ("local", local.local_command),
    ("master", cluster_commands.master_command),
    ("worker", cluster_commands.worker_command),
    ("compact", compact.compact_command),
    ("dead-letters", dead_letters.dead_letters_command),
    ("late-messages", late_messages.late_messages_command),
    ("console", console.console_command),
    ("console-access", console_access.console_access_command),
    ("key", key.key_command),
    ("doctor", doctor.doctor_command),
    ("warm-up", warm_up.warm_up_command),
    ("config", settings.config_command),
)
for _name, _command in _commands:
    app.command(_name)(_command)


def main() -> None:
    """Run the command line of this process; the entry point of the `drivetrain` program."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal whose encoding lacks characters shows escapes, as standard error always does.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as end:
        if _has_lost_java():
            _end_at_once(end.code)
        raise


def _has_lost_java() -> bool:
    """Whether this process has started Spark's Java process, and that has died."""
    if "pyspark" not in sys.modules:
        return False
    from drivetrain.spark.session.lost_java import java_has_ended

    return java_has_ended()


def _end_at_once(code: object) -> NoReturn:
    """End with an exit code, without the interpreter's own clean-up.

    Threads in which Java runs batches may still be active. If Python ends them inside Arrow's code, the
    process aborts with a meaningless exit code.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader is gone
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
