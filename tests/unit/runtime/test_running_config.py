"""What may change of the configuration while an application runs, and what its readers find."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.config import Config
from drivetrain.config.catalog import checkpoint, run
from drivetrain.errors import ConfigError, DiskFullError, InputError
from drivetrain.runtime import durable_file
from drivetrain.runtime.running_config import NAME, ChangedValue, RunningConfig

STARTED = Config.load(None, {}, {"run.batch-target": "10 s", "run.max-batch-bytes": "64 MiB"})


def test_a_changed_value_is_found_by_every_reader_and_outlasts_the_process(tmp_path: Path) -> None:
    writer, reader = RunningConfig(tmp_path, STARTED), RunningConfig(tmp_path, STARTED)
    assert reader[run.BATCH_TARGET] == 10_000
    changed = writer.change({"run.batch-target": "2 s", "checkpoint.interval": "5 s"})
    assert changed == (
        ChangedValue("run.batch-target", "10 s", "2 s"),
        ChangedValue("checkpoint.interval", "1 s", "5 s"),
    )
    for each in (writer, reader, RunningConfig(tmp_path, STARTED)):
        assert (each[run.BATCH_TARGET], each[checkpoint.INTERVAL]) == (2_000, 5_000)
    assert reader.started_with(run.BATCH_TARGET) == 10_000
    assert writer.change({"run.batch-target": "2000 ms"}) == (), "it had this value"


def test_a_restored_key_follows_what_the_application_is_started_with(tmp_path: Path) -> None:
    config = RunningConfig(tmp_path, STARTED)
    config.change({"run.batch-target": "2 s", "checkpoint.interval": "5 s"})
    assert config.change({}, ["run.batch-target"]) == (ChangedValue("run.batch-target", "2 s", "10 s"),)
    again = RunningConfig(tmp_path, Config.load(None, {}, {"run.batch-target": "7 s"}))
    assert (again[run.BATCH_TARGET], again[checkpoint.INTERVAL]) == (7_000, 5_000)


@pytest.mark.parametrize(
    ("values", "restored", "why"),
    [
        ({"run.delivery": "at most once"}, (), "cannot change while the application runs"),
        ({}, ("state.dir",), "cannot change while the application runs"),
        ({"run.batch-target": "soon"}, (), "cannot be read"),
        ({"run.max-batch-bytes": "65 MiB"}, (), "can only become smaller"),
        ({"run.batch-target": "1 s"}, ("run.batch-target",), "both set and unset"),
    ],
)
def test_what_is_refused_changes_nothing(
    tmp_path: Path, values: dict[str, str], restored: tuple[str, ...], why: str
) -> None:
    config = RunningConfig(tmp_path, STARTED)
    config.change({"run.batch-target": "3 s"})
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(ConfigError, match=why):
        config.change({"checkpoint.interval": "9 s", **values}, restored)
    assert (tmp_path / NAME).read_bytes() == before
    assert (config[run.BATCH_TARGET], config[checkpoint.INTERVAL]) == (3_000, 1_000)


def test_a_value_that_is_too_large_for_a_later_run_is_not_used(tmp_path: Path) -> None:
    RunningConfig(tmp_path, STARTED).change({"run.max-batch-bytes": "32 MiB"})
    smaller = Config.load(None, {}, {"run.max-batch-bytes": "16 MiB"})
    later = RunningConfig(tmp_path, smaller)
    assert later[run.MAX_BATCH_BYTES] == 16 << 20
    assert later.changed() == {}


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 40, b'{"run.batch-target":"2 s"} 00000000\n'])
def test_a_damaged_file_is_named_to_who_changes_and_ends_no_run(tmp_path: Path, content: bytes) -> None:
    config = RunningConfig(tmp_path, STARTED)
    config.change({"run.batch-target": "2 s"})
    (tmp_path / NAME).write_bytes(content)
    assert config[run.BATCH_TARGET] == 2_000
    for attempt in (config.changed, lambda: config.change({"run.batch-target": "1 s"})):
        with pytest.raises(InputError, match="changed while the application ran"):
            attempt()


def test_on_a_full_disk_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = RunningConfig(tmp_path, STARTED)
    config.change({"run.batch-target": "2 s"})

    def full(path: Path, content: bytes, **_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_file, "write_whole", full)
    with pytest.raises(DiskFullError):
        config.change({"run.batch-target": "1 s"})
    assert config[run.BATCH_TARGET] == 2_000
