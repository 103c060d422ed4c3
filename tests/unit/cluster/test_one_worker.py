"""Which applications run on one worker, and how many of its slots they take."""

from __future__ import annotations

import msgspec
import pytest

from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.one_worker import policy_of, require_held, slots_of, slots_together
from drivetrain.config import Config
from drivetrain.errors import ConfigError

REMOTE = {"state.dir": "s3://states/shop", "app.executors": "3", "app.executor-slots": "2"}
SPEC = ApplicationSpec("shop", "0" * 64, "shop.py", config=REMOTE)


@pytest.mark.parametrize(
    ("spec", "slots"),
    [
        (SPEC, 6),
        (msgspec.structs.replace(SPEC, config={"state.dir": "hdfs://node:8020/shop"}), 1),
        (msgspec.structs.replace(SPEC, config=REMOTE | {"state.dir": "/shared"}), 0),
        (msgspec.structs.replace(SPEC, app_master="shell:Shell"), 0),
        (msgspec.structs.replace(SPEC, config=REMOTE | {"app.executors": "many"}), 0),
    ],
    ids=["object store", "hdfs", "shared directory", "application master of its own", "faulty"],
)
def test_all_executors_of_an_application_with_a_remote_state_share_a_worker(
    spec: ApplicationSpec, slots: int
) -> None:
    assert slots_of(spec) == slots


def test_it_is_placed_as_its_configuration_says() -> None:
    assert policy_of(SPEC) == "spread"
    assert policy_of(msgspec.structs.replace(SPEC, config=REMOTE | {"app.placement": "pack"})) == "pack"


def test_a_worker_whose_configuration_differs_is_found_out() -> None:
    config = Config.load(None, {}, REMOTE)
    assert slots_together(config) == 6
    require_held(config, 6)
    require_held(Config(), 0)
    with pytest.raises(ConfigError, match="expected: 6 slots\n  got: 0"):
        require_held(config, 0)
