"""The file that names the local cluster: other commands read it while it is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.clusters import local_cluster
from drivetrain.cli.clusters.local_cluster import LocalCluster


def test_a_file_that_cannot_be_replaced_keeps_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own" / "cluster.toml"
    monkeypatch.setattr(local_cluster, "LOCAL_CLUSTER_FILE", file)
    cluster: Any = LocalCluster.__new__(LocalCluster)
    cluster.masters, cluster.secret_file = ["127.0.0.1:7001"], None
    cluster._write_masters()
    before = file.read_text()
    assert 'cluster.masters = "127.0.0.1:7001"' in before

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cluster.masters = ["127.0.0.1:7001", "127.0.0.1:7002"]
    with pytest.raises(OSError, match="No space left"):
        cluster._write_masters()
    assert file.read_text() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name], "nothing is left beside it"
