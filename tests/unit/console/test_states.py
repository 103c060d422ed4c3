"""States by REST: what is asked of the process that reads them, and what becomes of its answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path

import msgspec
import pytest
from console_in_thread import ConsoleInThread
from test_dead_letters_over_http import shop_state
from test_reading import HOSTILE
from typer.testing import CliRunner

from drivetrain.cli.main import app as command
from drivetrain.console import state_reading
from drivetrain.console.access.roles import Role
from drivetrain.console.answers.states import StateEntries, StateEntry
from drivetrain.console.planning.requests import Outcome, ReadStates
from drivetrain.errors import UserError

PATH = "/api/v1/applications/shop/states"
STATES = StateEntries(
    processor="counts",
    at_ms=60_000,
    clock_ms=120_000,
    count=2,
    states=(
        StateEntry(key=HOSTILE, value=json.dumps(HOSTILE), start_ms=None, end_ms=None, is_cut=False),
        StateEntry(key="7", value="x" * 4_000, start_ms=0, end_ms=60_000, is_cut=True),
    ),
    first_ms=0,
    last_ms=60_000,
    step_ms=60_000,
)
PROGRAM = """
import os, pathlib, sys, time
place = pathlib.Path(sys.argv[1])
pathlib.Path({asked!r}).write_bytes((place / "request.json").read_bytes())
pathlib.Path({environment!r}).write_text(" ".join(os.environ))
{act}
"""
ANSWER = "(place / 'outcome.json').write_bytes({outcome!r})"


@pytest.fixture
def state(console: ConsoleInThread, place: Path) -> Path:
    """The state directory of an application that was submitted."""
    state = shop_state(console, place)
    (state / "fragments" / "counts").mkdir(parents=True)
    (state / "fragments" / "counts" / "operator").touch()
    (state / "fragments" / "stateless").mkdir()
    return state


@pytest.fixture
def acting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program in the place of the one that reads states; returns the file with what it was asked."""

    def put(act: str) -> Path:
        asked, environment = str(tmp_path / "asked"), str(tmp_path / "environment")
        text = PROGRAM.format(asked=asked, environment=environment, act=act)
        (tmp_path / "acting_program.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        monkeypatch.setattr(state_reading, "PROGRAM", "acting_program")
        return Path(asked)

    return put


def test_states_are_those_that_the_process_read(
    console: ConsoleInThread, state: Path, acting, monkeypatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "secret")
    asked = acting(ANSWER.format(outcome=msgspec.json.encode(Outcome(states=STATES))))
    assert console.http.get(PATH).json() == {"processors": ["counts"]}
    query = {"key": HOSTILE, "at": "1970-01-01T00:01", "limit": "7"}
    answer = console.http.get(f"{PATH}/counts", params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == msgspec.to_builtins(STATES, builtin_types=(tuple,)) | {
        "states": [msgspec.to_builtins(each) for each in STATES.states]
    }
    request = json.loads(asked.read_bytes())
    assert request == {
        "app_id": state.name,
        "state_dir": str(state.parent),
        "writers": "owner",
        "processor": "counts",
        "key": HOSTILE,
        "at": "1970-01-01T00:01",
        "limit": 7,
        "longest": 4_000,
    }
    assert "DB_PASSWORD" not in (asked.parent / "environment").read_text().split()


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("os._exit(3)", "exit code 3"),
        ("print('out of heap'); sys.exit(1)", "out of heap"),
        ("(place / 'outcome.json').write_bytes(b'{}}')", "malformed"),
        ("(place / 'outcome.json').symlink_to('/etc/passwd')", "without an answer"),
    ],
)
def test_a_process_without_a_proper_answer_is_a_problem(
    console: ConsoleInThread, state: Path, acting, act: str, said: str
) -> None:
    acting(act)
    answer = console.http.get(f"{PATH}/counts")
    assert (answer.status_code, answer.json()["code"]) == (400, "user")
    assert said in answer.text


def test_a_process_that_does_not_end_is_ended(acting, tmp_path: Path) -> None:
    acting("time.sleep(600)")
    asked = ReadStates("shop-1", "states", "owner", "counts", None, None, 1, 1)
    with pytest.raises(UserError, match="take too long to read"):
        asyncio.run(state_reading.StateReading(tmp_path, 1_000).read(asked))
    with_its_directory = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if str(tmp_path).encode() in (process / "cmdline").read_bytes():
                with_its_directory.append(process)
    assert with_its_directory == []
    assert not list(tmp_path.glob("states-*"))


def test_guests_read_no_state(console: ConsoleInThread, state: Path, acting) -> None:
    acting(ANSWER.format(outcome=msgspec.json.encode(Outcome(states=STATES))))
    for role, status in ((Role.GUEST, 403), (Role.USER, 200)):
        http = console.client_of(role)
        assert [http.get(path).status_code for path in (PATH, f"{PATH}/counts")] == [status, status]
    assert console.client().get(f"{PATH}/counts").status_code == 401


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", f"key={'k' * 4_001}", f"at={'1' * 65}"]
)
def test_parameters_that_cannot_be_used_start_no_process(
    console: ConsoleInThread, state: Path, acting, query: str
) -> None:
    asked = acting("pass")
    assert console.http.get(f"{PATH}/counts?{query}").status_code == 400
    assert not asked.exists()


def test_the_command_asks_for_states_through_a_console(
    console: ConsoleInThread, state: Path, acting, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = acting(ANSWER.format(outcome=msgspec.json.encode(Outcome(states=STATES))))
    address = f"{console.address}?token={console.token}"
    given = ["state", "shop", "counts", "--key", HOSTILE, "--at", "1970-01-01T00:01", "--console", address]
    done = CliRunner().invoke(command, [*given, "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    answer = json.loads(done.output or capfd.readouterr().out)
    assert (answer["processor"], answer["clock_ms"], len(answer["states"])) == ("counts", 120_000, 2)
    assert answer["states"][1]["window"] == {"start_ms": 0, "end_ms": 60_000}
    request = json.loads(asked.read_bytes())
    assert (request["key"], request["at"], request["limit"]) == (HOSTILE, "1970-01-01T00:01", 50)
    nobody = CliRunner().invoke(command, ["state", "nothing", "counts", "--console", address])
    assert nobody.exit_code == 2, nobody.output
