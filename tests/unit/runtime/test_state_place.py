"""Where states are: on this machine, or in an object store with a working directory here."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.config import Config
from drivetrain.errors import ConfigError
from drivetrain.runtime.checkpoints.checkpoint_mode import refuse_copies
from drivetrain.runtime.state_place import (
    copies_key,
    copies_place,
    is_remote,
    shared_state_dir,
    state_home,
)


def config(**sets: str) -> Config:
    return Config.load(
        None, {}, {name.replace("__", ".").replace("_", "-"): text for name, text in sets.items()}
    )


def test_a_state_on_this_machine_is_where_the_key_says() -> None:
    here = config(state__dir="/data/states")
    assert state_home(here) == shared_state_dir(here) == "/data/states"
    assert not is_remote(here)
    assert copies_place(here) is None
    copied = config(state__dir="/data/states", checkpoint__copy_to="s3://backup/x")
    assert (copies_place(copied), copies_key(copied).name) == ("s3://backup/x", "checkpoint.copy-to")


@pytest.mark.parametrize(
    "place", ["s3://states/shop", "s3a://states/shop", "hdfs://node:8020/shop", "gs://b/s", "abfs://c@a.b/s"]
)
def test_a_remote_state_has_a_working_directory_of_its_own(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    remote = config(state__dir=place)
    assert is_remote(remote)
    assert (copies_place(remote), copies_key(remote).name) == (place, "state.dir")
    home = Path(state_home(remote))
    assert home.parent == tmp_path / "drivetrain" / "states"
    assert state_home(config(state__dir=f"{place}/")) == str(home)
    assert state_home(config(state__dir=f"{place}2")) != str(home)
    assert Path(state_home(config(state__dir=place, state__work_dir="/work"))).parent == Path("/work")


def test_buckets_of_one_name_in_two_stores_have_two_working_directories() -> None:
    amazon, own = config(state__dir="s3://a/b"), config(state__dir="s3://a/b", s3__endpoint="http://here")
    assert state_home(amazon) != state_home(own)
    google, emulated = (
        config(state__dir="gs://a/b"),
        config(state__dir="gs://a/b", gs__endpoint="http://here"),
    )
    assert state_home(google) != state_home(emulated)
    one, other = (config(state__dir="abfs://a/b", abfs__account=name) for name in ("one", "other"))
    assert state_home(one) != state_home(other)


@pytest.mark.parametrize("place", ["ftp://bucket/x", "https://host/x", ""])
def test_other_places_are_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=r"state\.dir"):
        config(state__dir=place)


def test_a_directory_that_is_shared_and_a_second_place_are_refused() -> None:
    remote = config(state__dir="s3://states/shop")
    with pytest.raises(ConfigError, match="in no directory that other machines share"):
        shared_state_dir(remote)
    refuse_copies(remote)
    with pytest.raises(
        ConfigError, match="checkpoints are copied by applications that `drivetrain run` runs"
    ):
        refuse_copies(config(checkpoint__copy_to="s3://backup/x"))
    with pytest.raises(ConfigError, match="the state is in an object store already"):
        copies_place(config(state__dir="s3://states/shop", checkpoint__copy_to="s3://backup/x"))
