"""Fragments that start and leave, between the core of their stages and the drivers that run them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from drivetrain.spark.run.fragment_changes import FragmentChanges


class Driver:
    """A fragment that runs; with `sources` its input has no end."""

    def __init__(self, *, sources: bool) -> None:
        self.is_finished = self.is_recovering = False
        self.is_asked = False
        self.is_draining = True
        self.query: Any = SimpleNamespace(trunk=SimpleNamespace(sources={"orders": None} if sources else {}))

    def drain(self) -> None:
        self.is_asked = True


def has_drained(driver: Any) -> bool:
    changes = FragmentChanges.__new__(FragmentChanges)
    return changes._has_drained(driver)


def test_a_fragment_behind_channels_has_drained_when_it_has_read_them_to_the_end() -> None:
    driver = Driver(sources=False)
    assert not has_drained(driver)
    assert not driver.is_asked, "it has messages left"
    driver.is_finished = True
    assert has_drained(driver)


def test_a_fragment_with_a_source_of_its_own_ends_with_the_batch_that_runs() -> None:
    driver = Driver(sources=True)
    assert not has_drained(driver)
    assert driver.is_asked
    driver.is_draining = False
    assert has_drained(driver)
    driver.is_recovering = True
    assert not has_drained(driver), "its last batch runs again first"


def test_what_an_earlier_process_has_seen_counts_for_windows_that_are_not_whole() -> None:
    clock = SimpleNamespace(newest_ms={}, bound_ms=9_000)
    query = SimpleNamespace(clock=clock, progress=SimpleNamespace(newest_ms=None), clock_ms=5_000)
    changes: Any = FragmentChanges.__new__(FragmentChanges)
    changes._versions = SimpleNamespace(in_force=SimpleNamespace(plan=SimpleNamespace(channels=())))
    changes._drivers = {"read": SimpleNamespace(query=query)}
    assert changes._newest_ms("read") == 9_000, "no message has come since the restart"
    clock.newest_ms = {"read": 9_500}
    assert changes._newest_ms("read") == 9_500
