"""What a worker is, and what configuration its processes get."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from drivetrain.api.graphs.literal_secrets import SecretWrittenOutError
from drivetrain.cluster.worker.worker_settings import WorkerSettings, config_for
from drivetrain.config import Config
from drivetrain.runtime.state_place import state_home
from drivetrain.runtime.usable_cores import usable_cores


def config(**sets: str) -> Config:
    return Config.load(None, {}, {name.replace("__", "."): value for name, value in sets.items()})


def test_what_is_left_open_comes_from_the_machine() -> None:
    settings = WorkerSettings.from_config(Config())
    assert (settings.name, settings.slots) == (socket.gethostname(), usable_cores())
    assert settings.directory.is_absolute()
    told = WorkerSettings.from_config(config(worker__name="box", worker__slots="7"))
    assert (told.name, told.slots) == ("box", 7)


def test_a_process_gets_the_workers_configuration_overridden_by_the_applications() -> None:
    worker = config(spark__master="local[1]", cluster__masters="a:1", worker__slots="3")
    given = config_for(worker, {"spark.master": "local[2]", "state.dir": "/shared"})
    assert given == {"spark.master": "local[2]", "cluster.masters": "a:1", "state.dir": "/shared"}
    Config.load(None, None, given)


def test_an_application_with_a_remote_state_works_below_the_workers_directory() -> None:
    worker = config(worker__directory="/w")
    given = config_for(worker, {"state.dir": "s3://states/shop"})
    assert given == {"state.dir": "s3://states/shop", "state.work-dir": "/w/states"}
    assert Path(state_home(Config.load(None, None, given))).parent == Path("/w/states")
    assert config_for(worker, {"state.dir": "hdfs://h:1/x", "state.work-dir": "/d"})["state.work-dir"] == "/d"
    named = Config.load(None, {}, {"state.work-dir": "/disk", "state.dir": "s3://states/shop"})
    assert config_for(named, {})["state.work-dir"] == "/disk"


def test_an_application_cannot_say_who_the_masters_are() -> None:
    worker = config(cluster__masters="a:1")
    assert config_for(worker, {"cluster.masters": "evil:1", "worker.slots": "99"}) == {
        "cluster.masters": "a:1"
    }


def test_tables_are_merged_and_files_are_named_absolutely() -> None:
    worker = Config.load(
        None, {}, {"spark.conf": '{"spark.a": "1", "spark.b": "1"}', "cluster.secret-file": "secret"}
    )
    given = config_for(worker, {"spark.conf": '{"spark.b": "2"}'})
    assert json.loads(given["spark.conf"]) == {"spark.a": "1", "spark.b": "2"}
    assert given["cluster.secret-file"] == str(Path("secret").resolve())


def test_a_secret_that_would_be_in_every_launch_file_is_refused() -> None:
    login = 'org.x.PlainLoginModule required username="u" password="%s";'
    sets = {"kafka.options.sasl.jaas.config": login % "hush-hush"}
    with pytest.raises(SecretWrittenOutError, match=r"kafka\.options\.sasl\.jaas\.config") as raised:
        WorkerSettings.from_config(Config.load(None, {}, sets))
    assert "hush-hush" not in str(raised.value)
    sets = {"kafka.options.sasl.jaas.config": login % "${KAFKA_PASSWORD}"}
    settings = WorkerSettings.from_config(Config.load(None, {}, sets))
    assert "${KAFKA_PASSWORD}" in config_for(settings.config, {})["kafka.options"]
