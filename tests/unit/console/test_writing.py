"""What changes anything: uploads, kill, restart, replay, savepoints; and what is refused."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from console_in_thread import SLOW_S, ConsoleInThread, scripted
from test_reading import HOSTILE, running

from drivetrain.cluster.messages.applications import ApplicationState, Kill, Restart, Submit
from drivetrain.console.access.roles import Role
from drivetrain.console.handlers.uploads import MOST_UPLOADS

ROOT = Path(__file__).resolve().parents[3]

world = scripted.world

APPLICATION = b"""
from drivetrain import Application, agg, sinks, sources, windows

app = Application("shop")
place = app.setting("input", doc="where the orders are")
app.setting("password", "${PASSWORD}", secret=True)
orders = app.read(sources.generate(rows=10, columns={"key": "id % 3"}), name="orders")
orders.group_by("key").window(windows.tumbling("1 h")).aggregate(n=agg.count()).sink(sinks.none())
"""
QUERY = {"file": "shop.py", "set": ["input=/some/where"]}


def operation(http: httpx.Client, answer: httpx.Response) -> dict:
    """The operation of an answer, once it has ended."""
    assert answer.status_code == 202, answer.text
    end_s = time.monotonic() + SLOW_S
    while True:
        told = http.get(answer.headers["location"]).json()
        if told["state"] != "running":
            return told
        assert time.monotonic() < end_s
        time.sleep(0.02)


def submit(console: ConsoleInThread, content: bytes = APPLICATION, **headers: str) -> httpx.Response:
    return console.http.post("/api/v1/applications", params=QUERY, content=content, headers=headers)


def test_an_upload_is_planned_without_being_submitted(console: ConsoleInThread) -> None:
    answer = console.http.post("/api/v1/plans", params=QUERY, content=APPLICATION)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["name"] == "shop"
    settings = {setting["name"]: setting for setting in told["settings"]}
    assert settings["input"]["value"] == "/some/where"
    assert settings["input"]["is_required"] is True
    assert settings["password"]["value"] == "***"
    graph = told["graph"]
    assert {each["processor"] for each in graph["processors"]} >= {"orders"}
    for each in graph["processors"]:
        box = each["box"]
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= graph["width"]
    assert all(line["path"].startswith("M") for line in graph["lines"])
    assert console.world.count(Submit) == 0


def test_a_custom_application_is_planned_submitted_and_shown(console: ConsoleInThread) -> None:
    """One with an application master of its own: it has settings and no graph, and shows what it printed."""
    content = (ROOT / "examples" / "distributed_shell.py").read_bytes()
    query = {"file": "distributed_shell.py", "set": ["command=uptime"]}
    planned = console.http.post("/api/v1/plans", params=query, content=content).json()
    assert (planned["name"], planned["graph"]) == ("distributed_shell", None)
    assert {one["name"]: one["value"] for one in planned["settings"]}["command"] == "uptime"
    done = console.http.post("/api/v1/applications", params=query, content=content)
    assert done.status_code == 201, done.text
    app_id = done.json()["app_id"]
    status = msgspec.structs.replace(world.status_of(app_id), printed=HOSTILE)
    app_master = console.cluster.app_master(status)
    console.world.change(app_id, state=ApplicationState.ACTIVE, epoch=1, app_master=app_master)
    path = f"/api/v1/applications/{app_id}"
    shown = console.http.get(path).json()
    assert shown["app_master"] == "distributed_shell:Shell"
    assert shown["job"]["printed"] == HOSTILE
    assert console.client_of(Role.GUEST).get(path).json()["job"]["printed"] == ""
    assert console.http.get(f"{path}/graph").json()["code"] == "not-found"


def test_the_file_of_an_upload_runs_once(console: ConsoleInThread, tmp_path: Path) -> None:
    mark = tmp_path / "runs"
    content = APPLICATION + f"\nopen({str(mark)!r}, 'a').write('once.')\n".encode()
    answer = console.http.post("/api/v1/plans", params=QUERY, content=content)
    assert answer.status_code == 200, answer.text
    assert mark.read_text() == "once."


def test_an_upload_is_submitted_once_for_each_key(console: ConsoleInThread) -> None:
    first = submit(console, **{"Idempotency-Key": "k1"})
    assert first.status_code == 201, first.text
    assert first.json() == {"app_id": "shop-1", "name": "shop"}
    assert first.headers["location"] == "/api/v1/applications/shop-1"
    again = submit(console, **{"Idempotency-Key": "k1"})
    assert (again.status_code, again.json()["app_id"]) == (200, "shop-1")
    other = submit(console, APPLICATION + b"\n# changed\n", **{"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["code"]) == (409, "key-reused")
    taken = submit(console)
    assert (taken.status_code, taken.json()["code"]) == (409, "name-taken")
    spec = console.world.applications["shop-1"].spec
    assert spec.settings == {"input": "/some/where"}
    planned = console.http.post("/api/v1/plans", params=QUERY, content=APPLICATION).json()
    for _ in range(2):  # planned from the code that the masters have, then kept
        assert console.http.get("/api/v1/applications/shop/graph").json() == planned["graph"]


def test_keys_belong_to_their_callers_and_a_refused_upload_can_be_corrected(console: ConsoleInThread) -> None:
    broken = submit(console, b"1/0\n", **{"Idempotency-Key": "k"})
    assert (broken.status_code, broken.json()["code"]) == (400, "application-file")
    assert "ZeroDivisionError" in broken.json()["user_traceback"]
    assert submit(console, **{"Idempotency-Key": "k"}).status_code == 201
    console.world.change("shop-1", state=ApplicationState.KILLED)
    other = console.client_of(Role.USER)
    made = other.post(
        "/api/v1/applications", params=QUERY, content=APPLICATION, headers={"Idempotency-Key": "k"}
    )
    assert (made.status_code, made.json()["app_id"]) == (201, "shop-2")


def test_a_key_that_was_used_through_another_console_is_noticed(console: ConsoleInThread) -> None:
    assert submit(console, **{"Idempotency-Key": "k"}).status_code == 201
    _forget(console)
    assert submit(console, **{"Idempotency-Key": "k"}).json()["app_id"] == "shop-1"
    _forget(console)
    other = submit(console, APPLICATION + b"\n# changed\n", **{"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (409, "key-reused")


def _forget(console: ConsoleInThread) -> None:
    """Start the console again, on the same cluster."""
    console.close()
    directory = console.directory.parent
    token = console.access.add_token("again", Role.ADMIN)
    del token
    fresh = ConsoleInThread(directory, console.cluster, {})
    console.__dict__.update(fresh.__dict__)


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def test_a_zip_brings_what_the_file_imports(console: ConsoleInThread) -> None:
    files = {
        "src/shop.py": b"from orders.rows import ROWS\n" + APPLICATION.replace(b"rows=10", b"rows=ROWS"),
        "src/orders/__init__.py": b"",
        "src/orders/rows.py": b"ROWS = 7\n",
    }
    answer = console.http.post(
        "/api/v1/applications", params={**QUERY, "file": "src/shop.py:app"}, content=zipped(files)
    )
    assert answer.status_code == 201, answer.text
    spec = console.world.applications["shop-1"].spec
    assert (spec.file, spec.target) == ("src/shop.py", "app")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "bad-request"),
        (b"PK\x03\x04 not really", "archive"),
        (zipped({"../../evil.py": b"x = 1"}), "archive"),
        (zipped({"other.py": b"x = 1"}), "application-file"),
        (b"\x00\xff\xfe garbled", "application-file"),
        (b"import os; os._exit(7)", "user"),
        (b"import sys; sys.exit(7)", "application-file"),
        (b"import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "user"),
        (b"print('<b>' * 100000)", "application-file"),
        (b"raise MemoryError", "application-file"),
        (b"x = 'a' * (1 << 36)", "application-file"),
    ],
)
def test_broken_uploads_are_problems_and_the_console_lives(
    shared_console: ConsoleInThread, content: bytes, code: str
) -> None:
    answer = submit(shared_console, content)
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text
    assert shared_console.http.get("/healthz").status_code == 200
    assert shared_console.world.count(Submit) == 0


@pytest.mark.parametrize(
    "file",
    ["/etc/passwd", "../x.py", "a/../b.py", "x", "x.py;rm", "x .py", "-x.py", ".x.py", "x.py:1", "x\n.py"],
)
def test_names_of_files_that_lead_elsewhere_are_refused(shared_console: ConsoleInThread, file: str) -> None:
    answer = shared_console.http.post("/api/v1/plans", params={"file": file}, content=APPLICATION)
    assert (answer.status_code, answer.json()["where"]) == (400, "file")


@pytest.mark.parametrize("console", [{"console.max-upload": "10 KiB"}], indirect=True)
@pytest.mark.parametrize("announced", [True, False])
def test_an_upload_is_counted_while_it_comes(console: ConsoleInThread, announced: bool) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100_000):
            yield b"#" * 1000

    content = b"#" * 20_000 if announced else endless()
    try:
        answer = console.http.post("/api/v1/applications", params=QUERY, content=content)
    except httpx.WriteError:
        return  # it had answered and closed while we were still sending
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


@pytest.mark.parametrize("console", [{"console.planning-timeout": "6 s"}], indirect=True)
def test_a_file_that_never_loads_is_ended_with_all_that_it_started(
    console: ConsoleInThread, tmp_path
) -> None:
    mark = tmp_path / "child"
    content = f"""
import subprocess, time
child = subprocess.Popen(["sleep", "1000"])
open({str(mark)!r}, "w").write(str(child.pid))
time.sleep(1000)
""".encode()
    answer = submit(console, content)
    assert answer.status_code == 400
    assert "too long" in answer.json()["detail"]
    import psutil

    pid = int(mark.read_text())
    end_s = time.monotonic() + SLOW_S
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_planning_process_does_not_see_the_secret(
    console: ConsoleInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIVETRAIN_SECRET", "the secret of the cluster, which nobody may see")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another one")
    answer = submit(console, b"import os\nraise ValueError(sorted(os.environ))")
    told = answer.json()["user_traceback"]
    assert "PATH" in told
    assert "SECRET" not in told


def test_kill_restart_and_replay_are_operations(console: ConsoleInThread) -> None:
    console.world.put(world.view_of())
    http = console.client_of(Role.USER)
    killed = operation(http, http.post("/api/v1/applications/wc/kill"))
    assert (killed["state"], killed["result"], killed["asked_by"]) == (
        "succeeded",
        {"state": "killed"},
        "a-user",
    )
    over = http.post("/api/v1/applications/wc-1/kill")
    assert (over.status_code, over.json()["code"]) == (409, "already-over")
    restarted = operation(http, http.post("/api/v1/applications/wc-1/restart"))
    assert restarted["result"] == {"epoch": "1"}
    body = {"replay_from": "2024-01-01T00:00"}
    replayed = operation(http, http.post("/api/v1/applications/wc-1/replay", json=body))
    assert replayed["state"] == "succeeded"
    assert console.world.applications["wc-1"].spec.replay_from_ms == 1_704_067_200_000
    wrong = operation(http, http.post("/api/v1/applications/wc-1/replay", json={"replay_from": "yesterday"}))
    assert wrong["state"] == "failed"
    assert wrong["problem"]["status"] == 400
    listed = http.get("/api/v1/operations").json()["operations"]
    assert [each["kind"] for each in listed] == ["replay", "replay", "restart", "kill"]
    assert http.get("/api/v1/operations/none").status_code == 404
    assert (console.world.count(Kill), console.world.count(Restart)) == (1, 2)


def test_an_operation_that_fails_says_why(console: ConsoleInThread) -> None:
    running(console)
    answer = console.http.post("/api/v1/applications/wc/savepoints", json={"timeout": "nonsense"})
    ended = operation(console.http, answer)
    assert (ended["state"], ended["problem"]["status"]) == ("failed", 400)
    refused = console.http.post("/api/v1/applications/wc/savepoints", json={"name": "../../etc"})
    assert refused.status_code == 400
    console.world.change("wc-1", state=ApplicationState.SUCCEEDED)
    over = console.http.post("/api/v1/applications/wc/savepoints", json={})
    assert (over.status_code, over.json()["code"]) == (409, "application-over")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"replay_from": []}',
        b'{"replay_from": 1, "x": 2}',
        b"[" * 100_000,
        b'{"replay_from": "' + b"x" * 2_000_000 + b'"}',
    ],
    ids=lambda body: f"{len(body)}-{body[:12]!r}",
)
def test_garbled_and_huge_bodies_change_nothing(shared_console: ConsoleInThread, body: bytes) -> None:
    shared_console.world.put(world.view_of())
    answer = shared_console.http.post("/api/v1/applications/wc/replay", content=body)
    assert answer.status_code in (400, 413)
    assert answer.headers["content-type"] == "application/problem+json"
    assert shared_console.world.count(Restart) == 0


class UploadUnderWay:
    """A connection that has announced an upload, and sends it once the console asks for it."""

    def __init__(self, console: ConsoleInThread, query: str) -> None:
        address = urlsplit(console.address)
        self._connection = socket.create_connection((address.hostname, address.port), SLOW_S)
        self._connection.sendall(
            f"POST /api/v1/plans?{query} HTTP/1.1\r\nHost: {address.netloc}\r\n"
            f"Authorization: Bearer {console.token}\r\n"
            "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n".encode()
        )
        self.answer = http.client.HTTPResponse(self._connection)
        self.status = int(self._connection.recv(12, socket.MSG_PEEK | socket.MSG_WAITALL).split()[1])

    def problem(self) -> dict:
        self.answer.begin()
        return json.loads(self.answer.read())

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@pytest.mark.parametrize(
    ("query", "where"), [("file=no+application", "file"), ("file=shop.py&set=without", "set")]
)
def test_what_is_wrong_beside_an_upload_is_answered_before_it_arrives(
    shared_console: ConsoleInThread, query: str, where: str
) -> None:
    with contextlib.closing(UploadUnderWay(shared_console, query)) as upload:
        assert upload.status == 400
        assert upload.problem()["where"] == where


def test_only_so_many_uploads_arrive_at_once_and_each_gives_its_place_back(console: ConsoleInThread) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_UPLOADS):
            upload = stack.enter_context(contextlib.closing(UploadUnderWay(console, "file=shop.py")))
            assert upload.status == 100
        over = stack.enter_context(contextlib.closing(UploadUnderWay(console, "file=shop.py")))
        assert (over.status, over.problem()["code"]) == (429, "too-many")
        assert int(over.answer.headers["retry-after"]) > 0
    end_s = time.monotonic() + SLOW_S
    while (answer := console.http.post("/api/v1/plans", params=QUERY, content=b"")).status_code == 429:
        assert time.monotonic() < end_s
        time.sleep(0.02)
    assert "no body" in answer.json()["detail"]
