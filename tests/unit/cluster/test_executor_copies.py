"""How an executor begins with a state that is in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.cluster.executor import executor_copies
from drivetrain.cluster.executor.executor_copies import ExecutorCopies
from drivetrain.config import Config
from drivetrain.errors import ConfigError
from drivetrain.runtime.checkpoints.checkpoint_copy import StillRunningError, running
from drivetrain.runtime.run_directory import RunDirectory

REMOTE = {"state.dir": "hdfs://nowhere:1/states"}
ASKED = {"fresh": False, "replay_from_ms": None, "savepoint": None}


def begin(copies: ExecutorCopies, place: Path, wait_s: float = 0.0, **asked: object) -> bool:
    rundir = RunDirectory(str(place), "shop", {})
    return copies.begin(rundir, wait_s, **(ASKED | asked))  # type: ignore[arg-type]


def test_a_state_in_a_directory_is_left_alone(tmp_path: Path) -> None:
    copies = ExecutorCopies(Config.load(None, {}, {"state.dir": str(tmp_path)}))
    assert begin(copies, tmp_path, savepoint="/backup/x") is False
    copies.watch()
    copies.close()
    assert copies.copies is None
    copied = ExecutorCopies(Config.load(None, {}, {"checkpoint.copy-to": "s3://backup/x"}))
    with pytest.raises(ConfigError, match="copy-to"):
        begin(copied, tmp_path)


@pytest.mark.parametrize("wish", [{"savepoint": "s3://saved/x"}, {"replay_from_ms": 0}])
def test_a_life_that_would_not_begin_again_elsewhere_is_refused(
    tmp_path: Path, wish: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="begun outside of a cluster"):
        begin(ExecutorCopies(Config.load(None, {}, REMOTE)), tmp_path, **wish)


def test_another_process_that_has_the_application_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def settle(_rundir: object, copies: object, *, fresh: bool) -> bool:
        tries.append((copies, fresh))
        if len(tries) % 3:
            raise running("hdfs://nowhere:1/states/shop", "process 7 on another machine")
        return True

    monkeypatch.setattr(executor_copies, "settle_with_store", settle)
    copies = ExecutorCopies(Config.load(None, {}, REMOTE))
    assert begin(copies, tmp_path, wait_s=60.0) is True
    assert len(tries) == 3
    with pytest.raises(StillRunningError, match="already running"):
        begin(copies, tmp_path, wait_s=-1.0)
