"""What the console answers about a cluster and its applications."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from console_in_thread import ConsoleInThread, scripted

from drivetrain.actor import ActorRef
from drivetrain.cli.inspection.application_report import look_at
from drivetrain.cluster.client.blocking_client import BlockingClient
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import ErrorView, FragmentView, HistoryReport, JobState
from drivetrain.console.access.roles import Role
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.job.fragment_execution import ExecutionState
from drivetrain.core.job.fragment_figures import Counters, FragmentFigures, LastBatch, Phases
from drivetrain.core.job.history import STEP_MS, FragmentMoment, History, Moment

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\n\r\0"

world = scripted.world

FIGURES = FragmentFigures(
    Counters(4, Phases(computing_ms=2_500, sink_ms=1_500), 700, blocked_ms={"hourly--daily": 3_000}),
    LastBatch(3, 10, Phases(computing_ms=250, sink_ms=150), {"out": 150}, 70, 40, 2),
    state_rows=218_000,
    state_bytes=90_000_000,
    latency_p50_ms=400,
    latency_p99_ms=1_200,
    silent_partitions=("numbers/3", "numbers/7"),
)
GROWING = History(
    tuple(
        Moment(
            STEP_MS * n,
            late=n,
            fragments={"hourly": FragmentMoment(1, n, 10 * n, state_rows=100_000 + 2_000 * n)}
            | ({"daily": FragmentMoment(1, lag_rows=4)} if n > 1 else {}),
        )
        for n in range(60)
    )
)
"""The state of one fragment grows; the other one began later."""
_NOW_MS = time.time_ns() // 1_000_000
RECENT = History(
    tuple(msgspec.structs.replace(each, at_ms=_NOW_MS - 600_000 + each.at_ms) for each in GROWING.moments)
)
"""The same, until a moment ago."""


def running(console: ConsoleInThread, **changes: object) -> ActorRef:
    """An application that runs: two fragments and a channel between them."""
    status = world.status_of(
        clock_ms=5_000,
        fragments=(
            FragmentView(
                "hourly", ExecutionState.RUNNING.value, 1, clock_ms=7_000, rows_total=10, figures=FIGURES
            ),
            FragmentView(
                "daily",
                ExecutionState.RUNNING.value,
                1,
                clock_ms=5_000,
                channels=(ChannelProgress("hourly--daily", "hourly", "daily", 7_000, lag_rows=4),),
            ),
        ),
        counts={"numbers": (10, 10, 0, 0), HOSTILE: (10, 5, 1, 2)},
        **changes,
    )
    app_master = console.cluster.app_master(status)
    console.world.put(
        world.view_of(state=ApplicationState.ACTIVE, epoch=1, app_master=app_master, worker="w1")
    )
    return app_master


def test_the_cluster_is_told_with_its_leader(console: ConsoleInThread) -> None:
    running(console)
    told = console.http.get("/api/v1/cluster").json()
    assert told["leader"] == console.world.leader
    assert [master["address"] for master in told["masters"]] == console.world.places
    assert told["applications"] == {"active": 1}


@pytest.mark.parametrize("console", [{"client.timeout": "1 s"}], indirect=True)
def test_without_a_leader_the_masters_are_told_and_the_console_is_not_ready(console: ConsoleInThread) -> None:
    assert console.http.get("/readyz").status_code == 200
    console.world.lead(None)
    told = console.http.get("/api/v1/cluster")
    assert told.status_code == 200
    assert told.json()["leader"] is None
    assert len(told.json()["masters"]) == 2
    refused = console.http.get("/readyz")
    assert (refused.status_code, refused.json()["code"]) == (503, "no-quorum")
    assert console.http.get("/healthz").status_code == 200


def test_a_snapshot_has_fragments_channels_and_the_diagnosis(console: ConsoleInThread) -> None:
    running(console)
    told = console.http.get("/api/v1/applications/wc").json()
    assert told["application"]["app_id"] == "wc-1"
    job = told["job"]
    assert [fragment["fragment"] for fragment in job["fragments"]] == ["hourly", "daily"]
    assert job["channels"][0]["lag_messages"] == 4
    counted = {each["processor"]: each for each in job["processors"]}
    assert (counted[HOSTILE]["late"], counted[HOSTILE]["dead_letters"]) == (1, 2)
    assert {finding["subject"] for finding in told["diagnosis"]["findings"]} == {HOSTILE, "hourly"}
    part = console.http.get("/api/v1/applications/wc-1/diagnosis").json()
    assert part["in_short"] == told["diagnosis"]["in_short"]
    assert console.http.get("/api/v1/applications/wc/channels").json()["channels"] == job["channels"]
    assert console.http.get("/api/v1/applications/wc/fragments").json()["fragments"] == job["fragments"]


def test_findings_are_those_of_the_command_line(console: ConsoleInThread) -> None:
    """Among them those that need the history, and those that need the list of masters."""
    app_master = running(console)
    app_master.tell(HistoryReport(GROWING))
    with BlockingClient(console.config) as client:
        printed = look_at(client, "wc").findings
    assert "state-grows" in {finding.rule for finding in printed}
    snapshot = console.http.get("/api/v1/applications/wc").json()
    for told in (snapshot["diagnosis"], console.http.get("/api/v1/applications/wc/diagnosis").json()):
        assert [(each["rule"], each["what"], each["remedy"]) for each in told["findings"]] == [
            (finding.rule, finding.what, finding.remedy) for finding in printed
        ]


def test_a_fragment_has_its_figures_and_its_phases_by_name(console: ConsoleInThread) -> None:
    running(console)
    told, without = console.http.get("/api/v1/applications/wc/fragments").json()["fragments"]
    figures = told["figures"]
    batch = figures["last_batch"]
    assert (batch["phases"]["computing_ms"], batch["phases"]["sink_ms"]) == (250, 150)
    assert sum(batch["phases"].values()) == 400
    assert (batch["sinks_ms"], batch["python_tasks"]) == ({"out": 150}, 2)
    assert figures["totals"]["blocked_ms"] == {"hourly--daily": 3_000}
    assert (figures["state_rows"], figures["state_bytes"]) == (218_000, 90_000_000)
    assert (figures["latency_p50_ms"], figures["latency_p99_ms"]) == (400, 1_200)
    assert (without["figures"]["last_batch"], without["figures"]["state_rows"]) == (None, None)
    assert without["figures"]["alignment_txid"] is None


def test_the_history_has_a_column_for_each_figure(console: ConsoleInThread) -> None:
    app_master = running(console)
    path = "/api/v1/applications/wc/history"
    assert console.http.get(path).json()["at_ms"] == []
    app_master.tell(HistoryReport(RECENT))
    told = console.http.get(path).json()
    assert told["app_id"] == "wc-1"
    assert told["at_ms"] == [each.at_ms for each in RECENT.moments]
    assert told["late"] == list(range(60))
    assert told["fragments"]["hourly"]["messages"][:3] == [0, 10, 20]
    assert told["fragments"]["daily"]["lag_messages"][:4] == [None, None, 4, 4]
    columns = [column for each in told["fragments"].values() for column in each.values()]
    columns += [column for each in columns if isinstance(each, dict) for column in each.values()]
    assert {len(column) for column in columns if isinstance(column, list)} == {60}
    console.world.change("wc-1", app_master=None)
    assert console.http.get(path).json() == told, "the console has recorded it"


def test_a_history_is_of_the_span_and_has_as_many_moments_as_asked_for(console: ConsoleInThread) -> None:
    app_master = running(console)
    app_master.tell(HistoryReport(RECENT))
    path = "/api/v1/applications/wc/history"
    began = RECENT.moments[0].at_ms

    def told(**query: int) -> dict[str, Any]:
        answer = console.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert len(told()["at_ms"]) == 60
    assert told(since_ms=began + 5_000, until_ms=began + 30_000)["at_ms"] == [
        began + step for step in (10_000, 20_000, 30_000)
    ]
    few = told(since_ms=0, points=6)
    assert len(few["at_ms"]) <= 6
    assert few["late"][-1] == 59
    assert told(since_ms=2**53)["at_ms"] == []
    for query in ("since_ms=-1", "since_ms=x", f"until_ms={2**54}", "points=0", "points=2001", "unknown=1"):
        assert console.http.get(f"{path}?{query}").status_code == 400, query


def test_a_console_that_starts_again_knows_what_the_one_before_recorded(tmp_path: Path) -> None:
    path = "/api/v1/applications/wc/history"
    with scripted.ScriptedCluster() as cluster:
        first = ConsoleInThread(tmp_path, cluster, {})
        running(first).tell(HistoryReport(RECENT))
        before = first.http.get(path).json()
        assert len(before["at_ms"]) == 60
        first.close()
        cluster.world.change("wc-1", app_master=None)
        second = ConsoleInThread(tmp_path, cluster, {})
        try:
            assert second.http.get(path).json() == before
        finally:
            second.close()


def test_without_a_file_the_console_answers_with_what_the_application_master_keeps(tmp_path: Path) -> None:
    (tmp_path / "console" / "history.sqlite").mkdir(parents=True, mode=0o700)
    (tmp_path / "console").chmod(0o700)
    with scripted.ScriptedCluster() as cluster:
        made = ConsoleInThread(tmp_path, cluster, {})
        try:
            running(made).tell(HistoryReport(RECENT))
            assert len(made.http.get("/api/v1/applications/wc/history").json()["at_ms"]) == 60
        finally:
            made.close()


def test_clocks_name_the_fragment_that_holds_the_minimum(console: ConsoleInThread) -> None:
    running(console)
    told = console.http.get("/api/v1/applications/wc/clocks").json()
    assert told["clock_ms"] == 5_000
    assert {each["fragment"]: each["holds_minimum"] for each in told["fragments"]} == {
        "hourly": False,
        "daily": True,
    }
    assert told["channels"] == {"hourly--daily": 7_000}
    assert [each["silent_partitions"] for each in told["fragments"]] == [2, 0]


def test_waiting_for_a_clock_that_is_reached_and_for_one_that_is_not(console: ConsoleInThread) -> None:
    running(console)
    path = "/api/v1/applications/wc/clocks"
    assert console.http.get(path, params={"wait": "5000"}).status_code == 200
    late = console.http.get(path, params={"wait": "6000", "timeout": "100 ms"})
    assert (late.status_code, late.json()["code"]) == (504, "still-under-way")


@pytest.mark.parametrize("wait", ["--5", "-", "5-", "tomorrow"])
def test_a_moment_that_is_none_is_a_problem(shared_console: ConsoleInThread, wait: str) -> None:
    running(shared_console)
    answer = shared_console.http.get(
        "/api/v1/applications/wc/clocks", params={"wait": wait, "timeout": "1 ms"}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "user")


def test_text_of_users_is_json_and_nothing_else(console: ConsoleInThread) -> None:
    error = ErrorView("operator", HOSTILE, where=HOSTILE, user_traceback=HOSTILE * 1000)
    running(console, errors=(error,), state=JobState.FAILED, error=error)
    answer = console.http.get("/api/v1/applications/wc/errors")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.json()["errors"][0]["what"] == HOSTILE
    missing = console.http.get("/api/v1/applications/%3Cscript%3E%0d%0aX-Evil:%201")
    assert missing.status_code == 404
    assert "x-evil" not in missing.headers
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.json()["where"] == "<script>\r\nX-Evil: 1"


def test_pages_of_applications_join_to_the_whole_list(console: ConsoleInThread) -> None:
    for number in range(1, 8):
        console.world.put(world.view_of(f"wc-{number}"))
    console.world.change("wc-3", state=ApplicationState.FAILED)
    seen, cursor = [], None
    while True:
        params = {"limit": 2} if cursor is None else {"limit": 2, "cursor": cursor}
        page = console.http.get("/api/v1/applications", params=params).json()
        seen += [line["app_id"] for line in page["applications"]]
        cursor = page["next"]
        if cursor is None:
            break
        console.world.put(world.view_of(f"wc-{100 + len(seen)}"))  # new ones do not shift the pages
    assert seen == [f"wc-{number}" for number in range(7, 0, -1)]
    failed = console.http.get("/api/v1/applications", params={"state": "failed"}).json()
    assert [line["app_id"] for line in failed["applications"]] == ["wc-3"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=1&limit=2",
        "state=unknown",
        "unknown=1",
        "cursor=zzz",
        "cursor=eyJhIjoxfQ",
        "cursor=%FF%FE",
        "limit=1&cursor=WyJhcHBsaWNhdGlvbnMgWydmYWlsZWQnXSAiLCJ3Yy0xIl0",
    ],
)
def test_parameters_that_cannot_be_used_are_problems(shared_console: ConsoleInThread, query: str) -> None:
    answer = shared_console.http.get(f"/api/v1/applications?{query}")
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 400
    assert answer.json()["detail"]


def test_an_unknown_application_has_the_code_and_remedy_of_the_command_line(console: ConsoleInThread) -> None:
    console.world.put(world.view_of("wordcount-1"))
    for part in ("", "/graph", "/history", "/clocks", "/logs", "/logs/events", "/errors"):
        answer = console.http.get(f"/api/v1/applications/wordcuont-1{part}")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-application")
        assert "wordcount-1" in answer.json()["remedy"]


def test_the_configuration_hides_secrets_and_names_where_values_were_set(console: ConsoleInThread) -> None:
    values = console.http.get("/api/v1/configuration").json()["values"]
    by_key = {value["key"]: value for value in values}
    assert by_key["client.timeout"]["origin"] == "--set client.timeout"
    assert by_key["console.max-upload"]["origin"] == "default"


@pytest.mark.parametrize("console", [{"console.prefix": "/drive"}], indirect=True)
def test_behind_a_proxy_the_prefix_may_be_there_or_not(console: ConsoleInThread) -> None:
    assert console.address.endswith("/drive/")
    plain = console.address.removesuffix("/drive/")
    for path in ("/drive/api/v1/cluster", "/api/v1/cluster"):
        assert console.http.get(plain + path).status_code == 200, path
    moved = console.http.get(f"{plain}/drive/?token={console.token}")
    assert (moved.status_code, moved.headers["location"]) == (303, "/drive/")
    assert "Path=/drive;" in moved.headers["set-cookie"]
    document = console.http.get(f"{plain}/drive/api/v1/openapi.json").json()
    assert document["servers"] == [{"url": "/drive"}]


def test_what_the_threads_of_an_executor_do(console: ConsoleInThread) -> None:
    path = "/api/v1/applications/wc-1/threads"
    running(console)
    assert console.http.get(path).json() == {
        "executor": "first",
        "python": '"MainThread"',
        "java": '"main"',
    }
    assert console.http.get(path, params={"executor": "shop-1-2"}).json()["executor"] == "shop-1-2"
    assert console.client_of(Role.GUEST).get(path).status_code == 403
    console.world.change("wc-1", state=ApplicationState.KILLED)
    assert console.http.get(path).status_code == 503
