"""The package has no unused functions, classes, methods and constants, nor parameters of private functions.

The exceptions only get fewer, and each says who needs it.
"""

from __future__ import annotations

import ast

from name_uses import unused, unused_parameters, uses_in

OUTSIDERS = {
    "drivetrain.core.cluster.slot_policies.register_policy": "people who add a policy of their own",
}
OF_TESTS = {
    "drivetrain.actor.carrier.Carriers.parked": "shows what else cannot be seen",
    "drivetrain.cluster.access.permissions.MESSAGE_MODULES": "every message is in the table",
    "drivetrain.core.checkpoint.barriers.Participant.may_run": "what a simulated shell asks",
    "drivetrain.core.clock.clock_service.ClockService.fragment_clock_ms": "the clock is their smallest",
    "drivetrain.core.liveness.phi_detector.PhiAccrualDetector.last_heartbeat_ms": "which heartbeat counts",
    "drivetrain.core.waiting.wheel.TimingWheel.spans_ms": "which levels there are",
    "drivetrain.spark.channel.ingest_threads.IngestThreads.wait_finished": "waits for a thread",
}
"""What only tests look at, as what they check cannot be seen otherwise."""


def test_every_name_is_used() -> None:
    found = unused()
    excepted = OUTSIDERS | OF_TESTS
    assert {place: line for place, line in found.items() if place not in excepted} == {}
    assert [place for place in excepted if place not in found] == [], "take them off the list"


def test_private_functions_use_their_parameters() -> None:
    assert unused_parameters() == []


def test_every_kind_of_use_is_seen() -> None:
    program = """
def again(n):
    return again(n)
thing.method(key=limit)
getattr(x, "text")
from module import taken as other
match x:
    case Point(across=1):
        pass
"""
    seen = {
        "again",
        "n",
        "thing",
        "method",
        "key",
        "limit",
        "getattr",
        "x",
        "text",
        "taken",
        "Point",
        "across",
    }
    assert set(uses_in(ast.parse(program))) == seen
