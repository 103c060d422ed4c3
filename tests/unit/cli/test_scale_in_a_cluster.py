"""`drivetrain scale` and `client.scale` ask an application master, and wait for the end; without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result
from test_update_in_a_cluster import Shop, shop

from drivetrain.cluster.client import BlockingClient
from drivetrain.cluster.messages.changing import ChangeStatus, ScaleFragment, Versions
from drivetrain.cluster.messages.following import ErrorView
from drivetrain.config import Config
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.scaling_state import CompletedScaling, PlannedScaling, ScalingState
from drivetrain.errors import UnavailableError, UserError

__all__ = ["shop"]

pytestmark = pytest.mark.timeout(120)

BEGUN = ScalingState("orders", 2, 8, 3_000_000, id="a" * 32)
DIVIDING = BEGUN.drained()
DONE = DIVIDING.ended(1_000, 3_000)
FAILED = DIVIDING.ended(1_000, 3_000, "the disk is full")
PLANNED = ChangeStatus(ChangeState(2), planned=PlannedScaling("orders", 2, 8, 3_000_000, 4_000))


def stands(*states: ScalingState | None) -> list[ChangeState]:
    return [ChangeState(2, scaling=state) for state in states]


def test_the_plan_is_shown_and_the_end_is_waited_for(shop: Shop, command: Callable[..., Result]) -> None:
    line = ("scale", "shop", "large", "--partitions", "8", "--masters", shop.cluster.masters)
    shop.answers(PLANNED)
    dry = command(*line, "--dry-run")
    assert (dry.exit_code, "3 MB in 2 partitions, is divided into 8" in dry.stdout) == (0, True), dry.output
    assert shop.asked == [ScaleFragment("large", 8, only_plans=True)]
    shop.answers(PLANNED, *stands(BEGUN, BEGUN, DIVIDING, DONE))
    done = command(*line, "--yes")
    assert done.exit_code == 0, done.output
    assert "fragment orders has 8 state partitions, before 2" in done.stdout
    assert shop.asked[1:] == [ScaleFragment("large", 8, only_plans=True), ScaleFragment("large", 8)]
    shop.answers(*stands(BEGUN, DONE))
    told = json.loads(command(*line, "--json").stdout)
    assert (told["application"], told["scaling"]["paused_ms"]) == ("shop-1", 3_000)


def test_versions_lists_what_was_scaled(shop: Shop, command: Callable[..., Result]) -> None:
    shop.app_master.tell(Versions(scalings=(CompletedScaling(1_700_000_000_000, "ada", DONE),)))
    shown = command("versions", "shop", "--masters", shop.cluster.masters)
    assert "by ada: fragment orders has 8 state partitions, before 2" in shown.stdout, shown.output


def test_a_program_learns_how_a_scaling_ends_or_why_it_is_refused(shop: Shop) -> None:
    with BlockingClient(Config.load(None, {}, {"cluster.masters": shop.cluster.masters})) as client:
        shop.answers(*stands(BEGUN, DONE))
        assert client.scale("shop", "orders", 8).paused_ms == 3_000
        shop.answers(PLANNED)
        assert client.plan_scaling("shop", "orders", 8).likely_pause_ms == 4_000
        shop.answers(*stands(BEGUN, FAILED))
        with pytest.raises(UserError, match="keeps 2 state partitions"):
            client.scale("shop", "orders", 8)
        shop.answers(*stands(BEGUN))
        with pytest.raises(UnavailableError, match="the scaling has not ended"):
            client.scale("shop", "orders", 8, timeout="1 ms")
        shop.answers(*stands(BEGUN, ScalingState("orders", 8, 2, id="b" * 32)))
        with pytest.raises(UnavailableError, match="the scaling of fragment orders has ended"):
            client.scale("shop", "orders", 8)
        error = ErrorView("user", "the fragment keeps no state, so there is nothing to divide")
        shop.answers(ChangeStatus(ChangeState(2), error))
        with pytest.raises(UserError, match="keeps no state"):
            client.scale("shop", "orders", 8)
