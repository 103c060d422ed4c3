"""A client that reaches the cluster only through its console: the same calls, and what is refused."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from console_in_thread import ConsoleInThread, scripted
from test_dead_letters_over_http import shop_state, store
from test_late_messages_over_http import store as store_late
from test_reading import running
from test_writing import APPLICATION
from typer.main import get_command
from typer.testing import CliRunner

from drivetrain.cli.main import app as command
from drivetrain.cluster.client import Client, UnknownApplicationError, connect
from drivetrain.cluster.client.console_calls import CALLS, MEDIA
from drivetrain.cluster.client.console_client import ConsoleClient
from drivetrain.cluster.client.console_connection import ConsoleRefusedError, ConsoleUnreachableError
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.config import Config
from drivetrain.console.access.roles import Role
from drivetrain.errors import ConfigError, PeerViolationError, UserError

world = scripted.world


def through(console: ConsoleInThread, token: str | None = None, path: str = "") -> Config:
    given = console.token if token is None else token
    sets = {"client.console": f"{console.address}{path}", "client.console-token": given}
    return Config.load(None, {}, sets)


def test_both_clients_have_the_same_methods() -> None:
    mine = dict(inspect.getmembers(ConsoleClient, inspect.isfunction))
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_") and name not in ("accept", "job_status"):
            assert list(inspect.signature(mine[name]).parameters) == list(
                inspect.signature(method).parameters
            ), name


def test_a_client_reads_through_a_console_what_it_reads_from_the_cluster(console: ConsoleInThread) -> None:
    running(console)
    app_id = "wc-1"
    console.cluster.worker("w1", {"executor-1": b"a line\n"})
    direct = connect(Config.load(None, {}, {"cluster.masters": console.cluster.masters}))
    with direct, connect(through(console)) as client:
        assert client.applications() == direct.applications()
        assert client.status(app_id)[1] == direct.status(app_id)[1]
        view = client.application(app_id)
        assert (view.spec, view.app_master) == (direct.application(app_id).spec, None)
        assert client.history(view) == direct.history(direct.application(app_id))
        assert [worker.name for worker in client.workers()] == [worker.name for worker in direct.workers()]
        assert client.masters() == direct.masters()
        with pytest.raises(UnknownApplicationError):
            client.application("nothing-9")


def test_an_application_is_submitted_followed_and_killed(console: ConsoleInThread, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_bytes(APPLICATION)
    with connect(through(console)) as client:
        app_id = client.submit(str(file), sets={"input": "/some/where"})
        assert app_id == "shop-1"
        assert client.application("shop").spec.settings["input"] == "/some/where"
        assert client.kill("shop").state is ApplicationState.KILLED
        assert client.wait("shop", "1 s").state is ApplicationState.KILLED
        *_, end = client.follow("shop", tick="50 ms")
        assert getattr(end, "state", None) is ApplicationState.KILLED
    lines = [json.loads(line) for line in (console.directory / "audit.log").read_text().splitlines()]
    assert [line for line in lines if "kill" in json.dumps(line)]
    assert not [line for line in lines if "application" in line.values()], "reading is not audited"


def test_the_commands_take_the_address_that_a_console_prints(
    console: ConsoleInThread, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"{console.address}?token={console.token}"
    state = shop_state(console, tmp_path)
    store(state, "one", "a bad one")
    store_late(state, "one", "a late one")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(command, [*arguments, "--console", address])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output or capfd.readouterr().out  # of commands that reserve standard output

    assert json.loads(run("apps", "--json"))["applications"][0]["id"] == "shop-1"
    assert json.loads(run("show", "shop", "--json"))["settings"]["input"] == "/some/where"
    assert "shop-1" in run("explain", "shop")
    assert json.loads(run("dead-letters", "shop", "--json"))["dead_letters"][0]["message"] == "a bad one"
    assert json.loads(run("late-messages", "shop", "--json"))["late_messages"][0]["message"] == "a late one"
    assert "a late one" in run("late-messages", "shop")
    assert "shop-1 is killed" in run("kill", "shop")


def test_every_command_that_takes_masters_takes_a_console() -> None:
    commands = get_command(command).commands  # type: ignore[attr-defined] # a group
    options = {
        name: {option for parameter in one.params for option in parameter.opts}
        for name, one in commands.items()
    }
    of_clusters = {name for name, known in options.items() if "--masters" in known}
    without = of_clusters - {name for name, known in options.items() if "--console" in known}
    assert without == {"master", "worker", "console"}, "they are the cluster, and its console"
    assert {"replay", "restart", "kill", "submit", "wait", "logs", "explain", "savepoint"} <= of_clusters


def test_an_application_lives_and_ends_by_commands_through_a_console(
    console: ConsoleInThread, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"{console.address}?token={console.token}"
    file = tmp_path / "shop.py"
    file.write_bytes(APPLICATION)

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(command, [*arguments, "--console", address])
        assert done.exit_code == code, (done.output, done.exception)
        return done.output or capfd.readouterr().out  # of commands that reserve standard output

    setting = ("--set", "input=/some/where")
    assert json.loads(run("submit", str(file), "--detached", "--json", *setting))["app_id"] == "shop-1"
    assert "is not over yet" in run("wait", "shop", "--timeout", "1 s", code=4)
    assert "is killed" in run("kill", "shop")
    assert json.loads(run("wait", "shop", "--json"))["state"] == "killed"
    assert "has already ended" in run("kill", "shop-1", code=2)
    assert json.loads(run("restart", "shop", "--json"))["id"] == "shop-1"
    assert console.world.applications["shop-1"].state is not ApplicationState.KILLED
    assert "2024-01-01" in run("replay", "shop", "--from", "2024-01-01T00:00", "--yes")
    assert console.world.applications["shop-1"].spec.replay_from_ms == 1_704_067_200_000
    assert "--from" in run("replay", "shop", "--from", "yesterday", "--yes", code=2)
    assert "no application" in run("restart", "nothing-9", code=2)
    lines = [json.loads(line) for line in (console.directory / "audit.log").read_text().splitlines()]
    assert [
        kind for kind in ("restart", "replay") if not any(kind in json.dumps(line) for line in lines)
    ] == []


def test_logs_are_read_and_a_slow_clock_is_waited_for_through_a_console(console: ConsoleInThread) -> None:
    running(console)
    console.cluster.worker("w1", {"executor-1": b"a line\n"})
    address = f"{console.address}?token={console.token}"
    shown = CliRunner().invoke(command, ["logs", "wc", "--console", address])
    assert (shown.exit_code, shown.output) == (0, "executor-1 | a line\n")
    late = CliRunner().invoke(
        command, ["wait", "wc", "--clock", "2999-01-01T00:00", "--timeout", "1 s", "--console", address]
    )
    assert late.exit_code == 4, late.output
    assert "clock is not there yet" in late.output


def test_masters_and_a_console_exclude_each_other(console: ConsoleInThread) -> None:
    done = CliRunner().invoke(
        command, ["apps", "--console", console.address, "--masters", console.cluster.masters]
    )
    assert done.exit_code == 2
    assert "leave one of them out" in done.output


@pytest.mark.parametrize("token", ["", "no-such-token"])
def test_without_a_token_the_remedy_says_how_to_get_one(console: ConsoleInThread, token: str) -> None:
    with connect(through(console, token)) as client, pytest.raises(ConsoleRefusedError) as refused:
        client.applications()
    assert "console-access add-token" in (refused.value.remedy or "")
    assert refused.value.where == console.address.rstrip("/")


def test_a_token_is_a_reference(console: ConsoleInThread, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(console.access.add_token("cli", Role.USER) + "\n")
    with connect(through(console, f"${{file:{file}}}")) as client:
        assert client.applications() == ()


def test_guests_are_refused(console: ConsoleInThread) -> None:
    with (
        connect(through(console, console.access.add_token("g", Role.GUEST))) as client,
        pytest.raises(ConsoleRefusedError),
    ):
        client.applications()


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("ftp://console", ConfigError),
        ("console.example.com", ConfigError),
        ("http://console.example.com", ConfigError),
        ("https://name@console.example.com", ConfigError),
        ("http://127.0.0.1:1", ConsoleUnreachableError),
    ],
)
def test_addresses_that_cannot_be_used(address: str, error: type[Exception]) -> None:
    with pytest.raises(error), connect(Config.load(None, {}, {"client.console": address})) as client:
        client.applications()


def test_a_page_that_is_no_console_is_said_to_be_none(console: ConsoleInThread) -> None:
    with connect(through(console, path="nowhere")) as client, pytest.raises((PeerViolationError, UserError)):
        client.applications()


def test_a_call_that_cannot_be_read_is_a_problem(console: ConsoleInThread) -> None:
    for name, call in CALLS.items():
        answer = console.http.post(
            f"/api/v1/calls/{name}", content=b"\xc1" + b"x" * 50, headers={"Content-Type": MEDIA}
        )
        assert answer.status_code == 400, (name, call)
    huge = console.http.post("/api/v1/calls/kill", content=b"x" * (2 * 1024 * 1024 + 1))
    assert huge.status_code == 413
    assert console.http.post("/api/v1/calls/nothing", content=b"\x80").status_code == 404
