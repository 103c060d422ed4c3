"""`drivetrain local`: the order in which its processes start, and the address of its console."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from drivetrain.cli.clusters import local, local_cluster
from drivetrain.cli.clusters.local_cluster import HOST, ClusterMember, LocalCluster
from drivetrain.config import Config
from drivetrain.console.addresses import ConsoleAddress

HTTPS = {"console.tls-certificate": "own.pem", "console.tls-key": "own.key", "console.prefix": "/wheel/"}


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a local cluster starts, and what it waits for, in order; no process is started."""
    monkeypatch.chdir(tmp_path)
    steps: list[str] = []

    def start(self: LocalCluster, name: str, kind: str, place: str, *own: Mapping[str, object]) -> None:
        steps.append(name)
        self.members.append(cast("ClusterMember", name))

    async def ready(*_: object) -> None:
        steps.append("the cluster is ready")

    def answers(_: ConsoleAddress) -> bool:
        steps.append("the console answers")
        return True

    monkeypatch.setattr(LocalCluster, "_start", start)
    monkeypatch.setattr(LocalCluster, "close", lambda self: None)
    monkeypatch.setattr(local_cluster, "_require_free", lambda port: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(local, "_wants_console", lambda asked: asked)
    monkeypatch.setattr(local, "_wait_ready", ready)
    monkeypatch.setattr(local, "listens", answers)
    monkeypatch.setattr(local, "_show", lambda *_: None)
    monkeypatch.setattr(local, "_wait_stopped", lambda *_: None)
    return steps


def test_the_console_starts_while_the_masters_elect_a_leader(started: list[str]) -> None:
    local.local_command(with_console=True, masters=1, workers=1, directory=Path("here"))
    assert started == ["master-1", "worker-1", "console", "the cluster is ready", "the console answers"]


def test_a_cluster_starts_without_a_console(started: list[str]) -> None:
    local.local_command(with_console=False, masters=1, workers=1, directory=Path("here"))
    assert started == ["master-1", "worker-1", "the cluster is ready"]


def test_the_address_of_a_console_with_https_says_so(started: list[str]) -> None:
    config = Config.load(None, {}, HTTPS)
    cluster = LocalCluster(
        1, 0, slots=1, directory=Path("here"), port=7070, sets={}, config_file=None, config=config
    )
    console = cluster.start_console()
    assert console.address.startswith(f"https://{HOST}:")
    assert console.address.endswith("/wheel/")
    assert console.entry == f"{console.address}?token={console.token}"
    assert console.as_data == {"address": console.address, "token": console.token, "entry": console.entry}
