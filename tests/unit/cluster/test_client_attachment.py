"""What an attached client does with what it sees: the pure core."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from client_world import finished, status_of, view_of
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.actor import Actor, ActorRef, ActorSystem, Message
from drivetrain.cluster.client.attachment import (
    GRACE_MS,
    SILENCE_MS,
    AppMasterLost,
    Attachment,
    Event,
    FollowAppMaster,
    LeaderUnreachable,
    ReportEnd,
    ShowNotice,
    ShowStatus,
    StatusReceived,
    ViewReceived,
)
from drivetrain.cluster.messages.applications import ApplicationState
from drivetrain.cluster.messages.following import JobState
from drivetrain.errors import InternalError, PeerViolationError


class Nobody(Actor):
    def receive(self, message: Message) -> None:
        self.context.unhandled(message)


def references(count: int) -> list[ActorRef]:
    """References are all that the core handles of actors; their system need not live on."""

    async def make() -> list[ActorRef]:
        system = ActorSystem("app")
        made = [system.spawn(Nobody) for _ in range(count)]
        await system.terminate()
        return made

    return asyncio.run(make())


FIRST, SECOND, THIRD = references(3)
ACTIVE = view_of(state=ApplicationState.ACTIVE, epoch=1, app_master=FIRST, worker="w1")
OVER = view_of(state=ApplicationState.SUCCEEDED, epoch=1, result=msgspec.msgpack.encode(finished()))


def test_the_application_master_is_followed_once_it_is_registered_and_ends_with_the_result() -> None:
    core = Attachment("wc-1")
    assert core.step(ViewReceived(view_of()), 0) == []
    assert core.step(ViewReceived(ACTIVE), 500) == [FollowAppMaster(FIRST)]
    assert core.step(ViewReceived(ACTIVE), 1_000) == []
    assert core.step(StatusReceived(status_of()), 1_100) == [ShowStatus(status_of())]
    assert core.step(ViewReceived(OVER), 1_500) == [
        ReportEnd("wc-1", ApplicationState.SUCCEEDED, None, finished())
    ]
    assert core.has_ended


def test_a_successor_is_said_followed_and_its_predecessor_not_listened_to() -> None:
    core = Attachment("wc-1")
    core.step(ViewReceived(ACTIVE), 0)
    assert core.step(AppMasterLost(FIRST), 100) == [
        ShowNotice("application master 1 is gone; waiting for its successor")
    ]
    assert core.step(AppMasterLost(FIRST), 200) == []
    assert core.step(ViewReceived(view_of(epoch=2)), 300) == []
    successor = view_of(state=ApplicationState.ACTIVE, epoch=2, app_master=SECOND, worker="w2")
    assert core.step(ViewReceived(successor), 400) == [
        ShowNotice("application master 2 has taken over on w2"),
        FollowAppMaster(SECOND),
    ]
    assert core.step(StatusReceived(status_of(epoch=1)), 500) == []
    assert core.step(ViewReceived(ACTIVE), 600) == []
    assert core.step(StatusReceived(status_of(epoch=2)), 700) == [ShowStatus(status_of(epoch=2))]


def test_leader_missing_and_a_new_leader_are_said_once() -> None:
    core = Attachment("wc-1")
    core.step(ViewReceived(ACTIVE, "m:1"), 0)
    missing = [ShowNotice("no master leads right now; the application keeps running")]
    assert core.step(LeaderUnreachable(), 100) == missing
    assert core.step(LeaderUnreachable(), 200) == []
    assert core.step(ViewReceived(ACTIVE, "m:2"), 300) == [ShowNotice("the master m:2 leads now")]
    assert core.step(ViewReceived(ACTIVE, "m:2"), 400) == []
    assert core.step(ViewReceived(ACTIVE, "m:3"), 500) == [ShowNotice("the master m:3 leads now")]


def test_an_application_master_that_says_nothing_is_asked_again() -> None:
    core = Attachment("wc-1")
    core.step(ViewReceived(ACTIVE), 0)
    assert core.step(ViewReceived(ACTIVE), SILENCE_MS - 1) == []
    assert core.step(ViewReceived(ACTIVE), SILENCE_MS) == [FollowAppMaster(FIRST)]
    core.step(StatusReceived(status_of()), SILENCE_MS + 100)
    assert core.step(ViewReceived(ACTIVE), 2 * SILENCE_MS) == []


@pytest.mark.parametrize(
    ("job", "state"),
    [
        (JobState.FINISHED, ApplicationState.SUCCEEDED),
        (JobState.FAILED, ApplicationState.FAILED),
        (JobState.CANCELED, ApplicationState.KILLED),
    ],
)
def test_without_a_registry_the_application_masters_last_word_counts_after_a_while(
    job: JobState, state: ApplicationState
) -> None:
    core = Attachment("wc-1")
    core.step(ViewReceived(ACTIVE), 0)
    last = status_of(state=job)
    core.step(StatusReceived(last), 1_000)
    assert core.step(AppMasterLost(FIRST), 1_100) == []
    core.step(LeaderUnreachable(), 2_000)
    effects = core.step(LeaderUnreachable(), 1_000 + GRACE_MS)
    assert effects[-1] == ReportEnd("wc-1", state, None, last)


def test_a_restart_takes_back_the_last_word_of_the_application_master_before() -> None:
    core = Attachment("wc-1")
    core.step(ViewReceived(ACTIVE), 0)
    core.step(StatusReceived(status_of(state=JobState.CANCELED)), 1_000)
    assert core.step(ViewReceived(view_of(epoch=2)), 2_000) == []
    assert core.step(LeaderUnreachable(), 1_000 + 2 * GRACE_MS) != []
    assert not core.has_ended


def test_what_a_pending_application_waits_for_is_said_when_it_changes() -> None:
    core = Attachment("wc-1")
    waits = view_of(why="no free slots")
    assert core.step(ViewReceived(waits), 0) == [ShowNotice("waiting: no free slots")]
    assert core.step(ViewReceived(waits), 500) == []


def test_an_event_after_the_end_is_a_mistake_and_a_foreign_result_the_peers() -> None:
    core = Attachment("wc-1")
    core.step(ViewReceived(OVER), 0)
    with pytest.raises(InternalError, match="after the end"):
        core.step(LeaderUnreachable(), 1)
    with pytest.raises(PeerViolationError, match="cannot be read"):
        Attachment("wc-1").step(ViewReceived(msgspec.structs.replace(OVER, result=b"\xc1")), 0)


def views() -> st.SearchStrategy[Event]:
    return st.builds(
        lambda epoch, state, master, leader: ViewReceived(
            view_of(
                epoch=epoch,
                state=state,
                app_master=[FIRST, SECOND, THIRD][epoch - 1] if master and epoch else None,
            ),
            leader,
        ),
        st.integers(0, 3),
        # Mostly alive, or hardly any story would be long.
        st.sampled_from([ApplicationState.PENDING, *[ApplicationState.ACTIVE] * 8, ApplicationState.KILLED]),
        st.booleans(),
        st.sampled_from(["m:1", "m:2", None]),
    )


def statuses() -> st.SearchStrategy[Event]:
    return st.builds(
        lambda epoch, state: StatusReceived(status_of(epoch=epoch, state=state)),
        st.integers(1, 3),
        st.sampled_from([*[JobState.RUNNING] * 4, JobState.RESTARTING, JobState.FINISHED]),
    )


EVENTS = st.one_of(
    views(),
    statuses(),
    st.just(LeaderUnreachable()),
    st.sampled_from([FIRST, SECOND, THIRD]).map(AppMasterLost),
)


@given(st.lists(st.tuples(EVENTS, st.integers(0, 4_000)), max_size=60))
def test_whatever_comes_epochs_rise_one_is_followed_and_the_end_is_the_last(
    story: list[tuple[Event, int]],
) -> None:
    core, now_ms, seen = Attachment("wc-1"), 0, 0
    said: list[object] = []
    for event, passes_ms in story:
        now_ms += passes_ms
        if core.has_ended:
            with pytest.raises(InternalError):
                core.step(event, now_ms)
            continue
        for effect in core.step(event, now_ms):
            said.append(effect)
            match effect:
                case ShowStatus(status):
                    assert status.epoch >= seen
                    seen = status.epoch
                case FollowAppMaster(app_master):
                    assert isinstance(event, ViewReceived)
                    assert app_master == event.view.app_master
        core.check()
    ends = [effect for effect in said if isinstance(effect, ReportEnd)]
    assert len(ends) <= 1
    assert not ends or said[-1] is ends[0]
