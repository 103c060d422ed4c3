"""Metrics: what is told, under names that exist in the shipped dashboard and alerts; counters that do not
fall.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from console_in_thread import ConsoleInThread, scripted
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from test_reading import GROWING, HOSTILE, running

import drivetrain.console
from drivetrain.cluster.client import Client
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import HistoryReport, Status
from drivetrain.console.access.roles import Role
from drivetrain.console.metrics.families import FAMILIES
from drivetrain.errors import UnavailableError

world = scripted.world
SHIPPED = Path(drivetrain.console.__file__).parent / "monitoring"

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(console: ConsoleInThread) -> Samples:
    """The samples by name and values of labels, parsed as a monitoring system does."""
    answer = console.client_of(Role.GUEST).get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_figures_of_cluster_and_application_are_told(console: ConsoleInThread) -> None:
    running(console)
    console.cluster.worker("w1", {})
    told = samples(console)
    assert told["drivetrain_console_connected", ()] == 1
    assert told["drivetrain_master_leads", (console.world.leader,)] == 1
    assert told["drivetrain_worker_free_slots", ("w1",)] == 1
    assert told["drivetrain_applications", ("active",)] == 1
    assert told["drivetrain_application_up", ("wc-1",)] == 1
    assert told["drivetrain_application_clock_seconds", ("wc-1",)] == 5
    assert told["drivetrain_channel_lag_messages", ("wc-1", "hourly--daily", "hourly", "daily")] == 4
    assert told["drivetrain_processor_late_messages_total", ("wc-1", HOSTILE)] == 1


def test_figures_of_fragments_are_told_in_base_units(console: ConsoleInThread) -> None:
    running(console)
    told = samples(console)
    hourly = ("wc-1", "hourly")
    assert told["drivetrain_fragment_state_rows", hourly] == 218_000
    assert told["drivetrain_fragment_silent_partitions", hourly] == 2
    assert told["drivetrain_fragment_state_bytes", hourly] == 90_000_000
    assert told["drivetrain_fragment_latency_seconds", (*hourly, "99")] == 1.2
    assert told["drivetrain_fragment_batches_total", hourly] == 4
    assert told["drivetrain_fragment_batch_phase_seconds_total", (*hourly, "sink")] == 1.5
    assert told["drivetrain_fragment_python_seconds_total", hourly] == 0.7
    assert told["drivetrain_fragment_blocked_seconds_total", ("wc-1", "hourly--daily", "hourly")] == 3
    assert ("drivetrain_fragment_state_bytes", ("wc-1", "daily")) not in told


def test_findings_about_trends_are_counted(console: ConsoleInThread) -> None:
    app_master = running(console)
    before = samples(console)["drivetrain_application_findings", ("wc-1", "warning")]
    app_master.tell(HistoryReport(GROWING))
    assert samples(console)["drivetrain_application_findings", ("wc-1", "warning")] == before + 1


def test_counters_survive_epochs(console: ConsoleInThread) -> None:
    app_master = running(console)
    series = ("drivetrain_processor_in_messages_total", ("wc-1", "numbers"))
    assert samples(console)[series] == 10
    successor = console.cluster.app_master(world.status_of(epoch=2, counts={"numbers": (3, 3, 0, 0)}))
    console.world.change("wc-1", epoch=2, app_master=successor)
    assert samples(console)[series] == 13
    successor.tell(Status(world.status_of(epoch=2, counts={"numbers": (9, 9, 0, 0)})))
    assert samples(console)[series] == 19
    console.world.change("wc-1", app_master=None)
    without = samples(console)
    assert without["drivetrain_application_up", ("wc-1",)] == 0
    assert series not in without
    console.world.change("wc-1", app_master=successor)
    assert samples(console)[series] == 19
    del app_master


def test_without_a_leader_that_is_told_and_counters_are_not_forgotten(console: ConsoleInThread) -> None:
    running(console)
    samples(console)
    successor = console.cluster.app_master(world.status_of(epoch=2, counts={"numbers": (1, 1, 0, 0)}))
    console.world.change("wc-1", epoch=2, app_master=successor)
    console.world.lead(None)
    told = samples(console)
    assert told["drivetrain_console_connected", ()] == 0
    assert ("drivetrain_applications", ("active",)) not in told
    console.world.lead(console.world.places[0])
    assert samples(console)["drivetrain_processor_in_messages_total", ("wc-1", "numbers")] == 11


def test_counters_survive_a_look_that_the_masters_did_not_answer(
    console: ConsoleInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(console)
    series = ("drivetrain_processor_in_messages_total", ("wc-1", "numbers"))
    assert samples(console)[series] == 10
    successor = console.cluster.app_master(world.status_of(epoch=2, counts={"numbers": (3, 3, 0, 0)}))
    console.world.change("wc-1", epoch=2, app_master=successor)
    with monkeypatch.context() as lost:
        lost.setattr(Client, "application", unanswered)
        without = samples(console)
    assert without["drivetrain_console_connected", ()] == 1
    assert series not in without
    assert samples(console)[series] == 13


async def unanswered(client: Client, app: str) -> None:
    raise UnavailableError("nobody answers in time", where=app)


def test_an_application_that_is_over_has_no_series(console: ConsoleInThread) -> None:
    running(console)
    console.world.change("wc-1", state=ApplicationState.SUCCEEDED)
    told = samples(console)
    assert told["drivetrain_applications", ("succeeded",)] == 1
    assert not [name for name, labels in told if "wc-1" in labels]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_and_labels_follow_the_conventions(family) -> None:
    assert re.fullmatch(r"drivetrain_[a-z]+(_[a-z]+)*", family.name)
    assert not family.name.endswith("_total")
    assert not {"batch", "attempt", "key", "epoch", "executor"} & set(family.labels)
    assert family.help.endswith(".")


def _names() -> set[str]:
    return {f"{family.name}_total" if family.kind == "counter" else family.name for family in FAMILIES}


def test_every_query_of_the_dashboard_and_the_alerts_names_a_metric_and_its_labels() -> None:
    dashboard = json.loads((SHIPPED / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    rules = [
        rule
        for group in yaml.safe_load((SHIPPED / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
    ]
    queries += [rule["expr"] for rule in rules]
    assert len(queries) > 20
    labels = {
        f"{family.name}_total" if family.kind == "counter" else family.name: set(family.labels)
        for family in FAMILIES
    }
    for query in queries:
        names = re.findall(r"drivetrain_\w+", query)
        assert names, query
        assert set(names) <= _names(), query
        used = set(re.findall(r'(\w+)=~?"', query)) | {
            name.strip() for by in re.findall(r"by \(([^)]*)\)", query) for name in by.split(",")
        }
        assert used <= set().union(*(labels[name] for name in names)), query
    for rule in rules:
        of = re.findall(r"drivetrain_\w+", rule["expr"])[0]
        said = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels[of], rule["alert"]


def test_families_that_are_told_are_those_that_are_listed(console: ConsoleInThread) -> None:
    running(console)
    told = {name for name, _ in samples(console)}
    assert told <= _names()
