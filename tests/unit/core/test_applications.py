"""The life of applications in the registry."""

from __future__ import annotations

from random import Random

import pytest

from drivetrain.core.cluster.application_record import ApplicationRecord, ApplicationState, RefusedError
from drivetrain.core.cluster.applications import ApplicationRegistry
from drivetrain.core.cluster.record_limits import RecordLimits


def registry() -> ApplicationRegistry:
    return ApplicationRegistry(max_deaths=2, window_ms=1_000)


def submit(registry: ApplicationRegistry, name: str = "wc", submission: str = "s1") -> ApplicationRecord:
    return registry.submit(submission, name, b"spec", "code", 5)[0]


def report(
    registry: ApplicationRegistry, app_id: str, epoch: int, state: ApplicationState, **more: object
) -> ApplicationRecord:
    values = {"clock_ms": None, "graph_version": 0, "why": None, "result": None, "restarts": None} | more
    return registry.report(app_id, epoch, state, 50, **values)  # type: ignore[arg-type]


def reason(error: pytest.ExceptionInfo[RefusedError]) -> str:
    return error.value.reason


def test_a_submission_that_comes_again_is_the_same_application() -> None:
    core = registry()
    record, is_new = core.submit("s1", "wc", b"", "", 1)
    assert (record.app_id, is_new) == ("wc-1", True)
    assert core.submit("s1", "wc", b"", "", 2) == (record, False)


def test_a_name_is_unique_while_its_application_lives_and_ids_are_never_used_again() -> None:
    core = registry()
    first = submit(core)
    with pytest.raises(RefusedError) as error:
        submit(core, submission="s2")
    assert reason(error) == "name-taken"
    core.kill("wc", 10)
    second = submit(core, submission="s3")
    assert (first.app_id, second.app_id) == ("wc-1", "wc-2")
    assert core.find("wc").app_id == "wc-2"
    assert core.find("wc-1").state is ApplicationState.KILLED


def test_each_launch_has_the_next_epoch_and_older_ones_are_refused() -> None:
    core = registry()
    app = submit(core).app_id
    assert core.launch(app, "l1", "w1", "worker").epoch == 1
    assert core.register(app, 1).state is ApplicationState.ACTIVE
    assert core.die(app, 1, "gone", 100).state is ApplicationState.PENDING
    assert core.launch(app, "l2", "w2", "worker").epoch == 2
    for stale in (lambda: core.register(app, 1), lambda: report(core, app, 1, ApplicationState.SUCCEEDED)):
        with pytest.raises(RefusedError) as error:
            stale()
        assert reason(error) == "stale-epoch"
    core.check()


def test_one_death_too_many_within_the_window_is_the_end_with_the_reason() -> None:
    core = registry()
    app = submit(core).app_id
    for epoch, at in ((1, 100), (2, 200)):
        core.launch(app, "l", "w", "worker")
        assert core.die(app, epoch, "killed", at).state is ApplicationState.PENDING
    core.launch(app, "l", "w", "worker")
    over = core.die(app, 3, "killed", 300)
    assert over.state is ApplicationState.FAILED
    assert over.why == "killed; that was failure 3 of an application master within 1000 ms"


def test_deaths_outside_of_the_window_do_not_count() -> None:
    core = registry()
    app = submit(core).app_id
    for epoch in range(1, 10):
        core.launch(app, "l", "w", "worker")
        assert core.die(app, epoch, "killed", epoch * 600).state is ApplicationState.PENDING


def test_the_clock_and_the_version_never_go_back_and_a_repeated_end_changes_nothing() -> None:
    core = registry()
    app = submit(core).app_id
    core.launch(app, "l", "w", "worker")
    report(core, app, 1, ApplicationState.ACTIVE, clock_ms=9, graph_version=2, restarts=b"r")
    record = report(core, app, 1, ApplicationState.ACTIVE, clock_ms=4, graph_version=1)
    assert (record.clock_ms, record.graph_version, record.restarts) == (9, 2, b"r")
    over = report(core, app, 1, ApplicationState.SUCCEEDED, result=b"done")
    assert report(core, app, 1, ApplicationState.SUCCEEDED, result=b"again") == over
    with pytest.raises(RefusedError):
        report(core, app, 1, ApplicationState.FAILED)
    with pytest.raises(RefusedError) as error:
        core.kill(app, 60)
    assert reason(error) == "already-over"


def test_restart_keeps_the_id_and_the_clock_and_fences_who_ran() -> None:
    core = registry()
    app = submit(core).app_id
    core.launch(app, "l", "w", "worker")
    report(core, app, 1, ApplicationState.ACTIVE, clock_ms=9)
    record = core.restart("wc")
    assert (record.app_id, record.clock_ms, record.state) == (app, 9, ApplicationState.PENDING)
    with pytest.raises(RefusedError):
        core.register(app, 1)


def test_the_clock_begins_again_with_the_life_of_a_replay_and_not_before() -> None:
    core = registry()
    app = submit(core).app_id
    core.launch(app, "l", "w", "worker")
    report(core, app, 1, ApplicationState.ACTIVE, clock_ms=9)
    record = core.restart(app, spec=b"replay")
    assert (record.spec, record.clock_ms, record.epoch) == (b"replay", 9, 2)
    core.launch(app, "l2", "w", "worker")
    assert report(core, app, 3, ApplicationState.ACTIVE, clock_ms=3).clock_ms == 9, "it may be withdrawn yet"
    begun = report(core, app, 3, ApplicationState.ACTIVE, clock_ms=3, spec=b"begun", replayed_from_ms=2)
    assert (begun.spec, begun.clock_ms) == (b"begun", 3)
    assert report(core, app, 3, ApplicationState.ACTIVE, clock_ms=2).clock_ms == 3
    core.check()


def test_what_a_report_says_of_the_spec_holds_through_deaths_and_restarts() -> None:
    core = registry()
    app = submit(core).app_id
    core.launch(app, "l1", "w1", "worker")
    assert report(core, app, 1, ApplicationState.ACTIVE).spec == b"spec"
    assert report(core, app, 1, ApplicationState.ACTIVE, spec=b"later").spec == b"later"
    core.die(app, 1, "gone", 100)
    assert core.launch(app, "l2", "w1", "worker").spec == b"later"
    with pytest.raises(RefusedError):
        report(core, app, 1, ApplicationState.ACTIVE, spec=b"of an epoch that is gone")
    assert core.restart(app).spec == b"later"
    assert core.submit("s1", "wc", b"spec", "code", 6) == (core.find(app), False)


def test_restart_of_one_that_is_over_needs_its_name() -> None:
    core = registry()
    app = submit(core).app_id
    core.kill(app, 10)
    submit(core, submission="s2")
    with pytest.raises(RefusedError) as error:
        core.restart(app)
    assert reason(error) == "name-taken"


def test_unknown_applications_are_refused() -> None:
    with pytest.raises(RefusedError) as error:
        registry().find("x")
    assert reason(error) == "unknown-application"


def test_the_oldest_that_are_over_are_forgotten_and_their_ids_not_reused() -> None:
    core = registry()
    for number in range(4):
        submit(core, f"a{number}", f"s{number}")
        core.kill(f"a{number}", number)
    assert [record.name for record in core.surplus(1)] == ["a0", "a1", "a2"]
    assert submit(core, "b", "s9").app_id == "b-5"


def test_those_that_ended_last_are_kept_though_the_clock_was_set_back_meanwhile() -> None:
    core = registry()
    for number, now_ms in enumerate([9_000_000, 9_000_001, 5, 6]):
        submit(core, f"a{number}", f"s{number}")
        core.kill(f"a{number}", now_ms)
    core.restart("a0")
    core.kill("a0", 7)
    assert [record.name for record in core.surplus(2)] == ["a1", "a2"]
    again = ApplicationRegistry(
        core.records.values(), last_number=core.last_number, max_deaths=2, window_ms=1_000
    )
    submit(again, "b", "s9")
    again.kill("b", 1)
    assert [record.name for record in again.surplus(2)] == ["a3"]
    assert [record.name for record in again.newest_first()] == ["b", "a0"]
    assert [record.name for record in again.newest_first(before=5)] == ["a0"]


def test_deaths_before_the_clock_was_set_back_do_not_count() -> None:
    core = registry()
    app = submit(core).app_id
    for epoch in range(1, 3):
        core.launch(app, "l", "w", "worker")
        core.die(app, epoch, "killed", 9_000_000)
    core.launch(app, "l", "w", "worker")
    assert core.die(app, 3, "killed", 10).state is ApplicationState.PENDING
    assert core.find(app).deaths_ms == (10,)


def test_what_is_too_large_is_refused_at_the_door_and_cut_at_the_end() -> None:
    core = ApplicationRegistry(max_deaths=2, window_ms=1_000, limits=RecordLimits(100, 100, 10))
    with pytest.raises(RefusedError) as error:
        core.submit("s1", "wc", b"x" * 99, "code", 1)
    assert reason(error) == "too-large"
    assert not core.records
    app = core.submit("s1", "wc", b"x" * 98, "code", 1)[0].app_id
    with pytest.raises(RefusedError):
        core.restart(app, spec=b"x" * 99)
    core.launch(app, "l", "w", "worker")
    record = report(core, app, 1, ApplicationState.ACTIVE, restarts=b"r" * 10)
    record = report(core, app, 1, ApplicationState.ACTIVE, restarts=b"r" * 11)
    assert record.restarts == b"r" * 10
    record = report(core, app, 1, ApplicationState.FAILED, why="a" + "b" * 9_000 + "c", result=b"x" * 101)
    assert record.result is None
    assert record.why is not None
    assert len(record.why) <= 4_000
    assert record.why.startswith("ab")
    assert record.why.endswith("not kept, as it has 101 bytes")


@pytest.mark.parametrize("seed", range(60))
def test_invariants_hold_whatever_happens_and_records_bring_it_back(seed: int) -> None:
    random = Random(seed)
    core = registry()
    for step in range(200):
        app = f"{random.choice('abc')}-{random.randrange(1, 8)}"
        epoch, state = random.randrange(5), random.choice(list(ApplicationState))
        acts = [
            lambda step=step: core.submit(f"s{step % 30}", random.choice("abc"), b"", "", step),
            lambda app=app: core.launch(app, "l", "w", "n"),
            lambda app=app, epoch=epoch: core.register(app, epoch),
            lambda app=app, epoch=epoch, state=state: report(core, app, epoch, state),
            lambda app=app, epoch=epoch, step=step: core.die(app, epoch, "x", step),
            lambda app=app, step=step: core.kill(app, step),
            lambda app=app: core.restart(app),
        ]
        before = dict(core.records)
        try:
            random.choice(acts)()
        except RefusedError:
            assert dict(core.records) == before
        core.check()
    again = ApplicationRegistry(
        core.records.values(), last_number=core.last_number, max_deaths=2, window_ms=1_000
    )
    again.check()
    assert again.records == core.records


def test_an_application_master_that_is_moved_has_not_failed() -> None:
    core = registry()
    app = submit(core).app_id
    for epoch in range(1, 6):
        core.launch(app, f"l{epoch}", "w", "worker")
        moved = core.die(app, epoch, "its worker leaves", 100, counts=False)
        assert (moved.state, moved.deaths_ms) == (ApplicationState.PENDING, ())
