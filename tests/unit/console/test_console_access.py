"""Who may do what, and what is refused: hosts, origins, tokens, passwords, cookies, roles."""

from __future__ import annotations

import json
import os

import httpx
import pytest
from console_in_thread import ConsoleInThread, scripted

from drivetrain.console.access import access_file
from drivetrain.console.access.access_file import SCRYPT_N, AccessFile, scrypt, sha256
from drivetrain.console.access.roles import Role
from drivetrain.console.routes.table import ROUTES
from drivetrain.errors import ConfigError, InputError, UserError

PASSWORD = "correct horse battery"

NO_BODY = {"healthz", "readyz"}


def test_passwords_are_hashed_at_the_cost_that_access_files_have(monkeypatch: pytest.MonkeyPatch) -> None:
    # The other tests here hash at less cost. Another hash would lock out all who have a password.
    monkeypatch.setattr(access_file, "SCRYPT_N", SCRYPT_N)
    assert scrypt("correct horse", bytes(range(16))).hex() == (
        "5c662628ac4eb1068a287e2aa2a202ae248e98db04d61d3327e7342db6ec7097"
    )


def path_of(path: str) -> str:
    return path.replace("{app}", "wc").replace("{operation}", "0").replace("{number}", "1")


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.role is not Role.NOBODY], ids=lambda r: r.name
)
def test_every_route_that_needs_a_role_refuses_the_one_below(shared_console: ConsoleInThread, route) -> None:
    below = Role(route.role - 1)
    http = shared_console.client() if below is Role.NOBODY else shared_console.client_of(below)
    answer = http.request(route.method, path_of(route.path))
    expected = (401, "not-signed-in") if below is Role.NOBODY else (403, "not-allowed")
    assert (answer.status_code, answer.json()["code"]) == expected
    assert shared_console.world.count(scripted.world.Kill) == 0
    if below is Role.NOBODY:
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "[::1", "a@b", "1.2.3.4.evil"]
)
def test_a_foreign_host_reaches_no_handler(shared_console: ConsoleInThread, host: str) -> None:
    answer = shared_console.http.get("/healthz", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (421, "foreign-host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:7080", "10.1.2.3"])
def test_names_of_this_machine_and_addresses_are_taken(shared_console: ConsoleInThread, host: str) -> None:
    assert shared_console.http.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("console", [{"console.hosts": "dash.example, other.example"}], indirect=True)
def test_further_hosts_are_configured(console: ConsoleInThread) -> None:
    assert console.http.get("/healthz", headers={"Host": "Dash.example:443"}).status_code == 200
    assert console.http.get("/healthz", headers={"Host": "dash.example.evil"}).status_code == 421


@pytest.mark.parametrize("token", ["", "x", "dtc_" + "a" * 43, "\xe4", "a" * 30_000])
def test_a_wrong_token_is_an_error_and_not_taken_for_none(
    shared_console: ConsoleInThread, token: str
) -> None:
    http = shared_console.client()
    authorization = f"Bearer {token}".strip().encode("latin-1")
    answer = http.get("/healthz", headers=[(b"authorization", authorization)])
    assert (answer.status_code, answer.json()["code"]) == (401, "not-signed-in")


def test_the_link_gives_a_cookie_that_scripts_cannot_read_and_leaves_the_address(
    console: ConsoleInThread,
) -> None:
    http = console.client()
    wrong = http.get("/?token=wrong")
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    moved = http.get(f"/?token={console.token}&view=app")
    assert (moved.status_code, moved.headers["location"]) == (303, "/?view=app")
    cookie = moved.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert console.token not in cookie
    assert http.get("/api/v1/session").json()["role"] == "admin"
    assert http.get("/api/v1/session").json()["means"] == "session"


def signed_in(console: ConsoleInThread, role: Role = Role.USER) -> httpx.Client:
    console.access.add_user("ada", role, PASSWORD)
    http = console.client()
    answer = http.post("/api/v1/session", json={"name": "ada", "password": PASSWORD})
    assert answer.status_code == 201, answer.text
    return http


def origin_of(console: ConsoleInThread) -> str:
    return console.address.rstrip("/")


def test_a_user_signs_in_and_out(console: ConsoleInThread) -> None:
    http = signed_in(console)
    assert http.get("/api/v1/session").json() == {
        "name": "ada",
        "role": "user",
        "means": "session",
        "takes_passwords": True,
    }
    out = http.delete("/api/v1/session", headers={"Origin": origin_of(console)})
    assert out.status_code == 200
    assert http.get("/api/v1/session").json()["role"] == "nobody"


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://127.0.0.1:1", "https://localhost", ""]
)
def test_a_write_by_cookie_needs_a_page_of_this_console(console: ConsoleInThread, origin: str | None) -> None:
    console.world.put(scripted.world.view_of())
    http = signed_in(console)
    headers = {} if origin is None else {"Origin": origin}
    answer = http.post("/api/v1/applications/wc/kill", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign-origin")
    assert console.world.count(scripted.world.Kill) == 0
    done = http.post("/api/v1/applications/wc/kill", headers={"Origin": origin_of(console)})
    assert done.status_code == 202


def test_signing_in_from_another_page_is_refused(console: ConsoleInThread) -> None:
    console.access.add_user("ada", Role.USER, PASSWORD)
    answer = console.client().post(
        "/api/v1/session",
        json={"name": "ada", "password": PASSWORD},
        headers={"Origin": "http://evil.example"},
    )
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign-origin")


def test_wrong_passwords_are_told_apart_from_nothing_and_slow_down(console: ConsoleInThread) -> None:
    console.access.add_user("ada", Role.USER, PASSWORD)
    http = console.client()
    told = set()
    for name in ("ada", "eve"):
        answer = http.post("/api/v1/session", json={"name": name, "password": "wrong password"})
        assert answer.status_code == 401
        told.add(answer.json()["detail"])
    assert len(told) == 1
    statuses = [
        http.post("/api/v1/session", json={"name": "ada", "password": "wrong password"}).status_code
        for _ in range(6)
    ]
    assert statuses[-1] == 429
    refused = http.post("/api/v1/session", json={"name": "ada", "password": PASSWORD})
    assert refused.status_code == 429
    assert refused.json()["remedy"] == f"try again in {refused.headers['retry-after']} s"


def test_a_removed_user_and_a_removed_token_end_at_once(console: ConsoleInThread) -> None:
    by_cookie = signed_in(console)
    by_token = console.client_of(Role.GUEST)
    assert by_cookie.get("/api/v1/cluster").status_code == 200
    assert by_token.get("/api/v1/cluster").status_code == 200
    console.access.remove("ada")
    console.access.remove("a-guest")
    assert by_cookie.get("/api/v1/cluster").status_code == 401
    assert by_token.get("/api/v1/cluster").status_code == 401


def test_another_password_ends_the_sessions_of_the_one_before(console: ConsoleInThread) -> None:
    http = signed_in(console)
    console.access.add_user("ada", Role.USER, "another password")
    assert http.get("/api/v1/cluster").status_code == 401


def test_neither_tokens_nor_passwords_are_kept(console: ConsoleInThread) -> None:
    signed_in(console)
    token = console.access.add_token("ci", Role.USER)
    kept = b"".join(path.read_bytes() for path in console.directory.rglob("*") if path.is_file())
    for secret in (PASSWORD, token, console.token):
        assert secret.encode() not in kept
    assert sha256(token).encode() in kept
    assert (console.directory / "access").stat().st_mode & 0o077 == 0


def test_every_write_is_one_line_of_the_audit_log(console: ConsoleInThread) -> None:
    console.world.put(scripted.world.view_of())
    http = console.client_of(Role.USER)
    http.post("/api/v1/applications/wc/kill")
    http.post("/api/v1/applications/%0a%7b%22who%22:%22root%22%7d%1b/kill")
    http.get("/api/v1/applications/wc")
    lines = (console.directory / "audit.log").read_text().splitlines()
    noted = [json.loads(line) for line in lines]
    assert [(line["who"], line["what"], line["app"]) for line in noted] == [
        ("a-user", "killApplication", "wc"),
        ("a-user", "killApplication", '\n{"who":"root"}\x1b'),
    ]
    assert noted[0]["from"] == "127.0.0.1"
    assert noted[0]["means"] == "token"


def test_what_cannot_be_noted_is_not_done(console: ConsoleInThread) -> None:
    console.world.put(scripted.world.view_of())
    (console.directory / "audit.log").mkdir()
    answer = console.http.post("/api/v1/applications/wc/kill")
    assert answer.status_code == 503
    assert console.world.count(scripted.world.Kill) == 0


def test_off_loopback_it_does_not_start_without_users_or_without_https(tmp_path) -> None:
    with scripted.ScriptedCluster(masters=1) as cluster:
        sets = {"console.host": "0.0.0.0"}
        with pytest.raises(ConfigError, match="nobody could sign in"):
            ConsoleInThread(tmp_path, cluster, sets)
        AccessFile(tmp_path / "console").add_token("ci", Role.GUEST)
        with pytest.raises(ConfigError, match="unencrypted"):
            ConsoleInThread(tmp_path, cluster, sets)
        made = ConsoleInThread(tmp_path, cluster, {**sets, "console.without-tls": "true"})
        try:
            assert made.token == "", "there is no link off loopback"
            assert made.client().get(made.address + "api/v1/cluster").status_code == 401
        finally:
            made.close()


def test_a_damaged_file_of_users_is_an_error_at_the_start(tmp_path) -> None:
    file = AccessFile(tmp_path)
    file.add_token("ci", Role.GUEST)
    (tmp_path / "access").write_bytes(b"{}")
    with pytest.raises(InputError):
        AccessFile(tmp_path).entries()
    (tmp_path / "access").chmod(0o666)
    with pytest.raises(UserError, match="others can write"):
        AccessFile(tmp_path).entries()


@pytest.mark.parametrize("name", ["", "a b", "-x", "a\n", "<b>", "x" * 65, "../x"])
def test_names_that_cannot_be_are_refused(tmp_path, name: str) -> None:
    with pytest.raises(UserError, match="not a name"):
        AccessFile(tmp_path).add_user(name, Role.GUEST, PASSWORD)
    with pytest.raises(UserError, match="too short"):
        AccessFile(tmp_path).add_user("ada", Role.GUEST, "short")


def test_users_and_tokens_are_kept_from_others_whatever_the_umask_is(tmp_path) -> None:
    before = os.umask(0)
    try:
        AccessFile(tmp_path).add_token("ci", Role.GUEST)
    finally:
        os.umask(before)
    assert (tmp_path / "access").stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_file_of_users_that_others_can_write_from_now_on_is_refused(tmp_path) -> None:
    file = AccessFile(tmp_path)
    file.add_token("ci", Role.GUEST)
    assert [token.name for token in file.entries().tokens] == ["ci"]
    (tmp_path / "access").chmod(0o666)
    with pytest.raises(UserError, match="others can write"):
        file.entries()
