"""The election: votes once per term, leases, and what a frozen, restarted or cut off master may do."""

from __future__ import annotations

from random import Random

import pytest

from drivetrain.core.cluster.election import Election, Role
from drivetrain.core.cluster.election_events import (
    AnswerLease,
    AnswerVote,
    BeginToLead,
    ElectionEffect,
    LeaseAnswered,
    LeaseReleased,
    LeaseRequested,
    MasterAddress,
    PersistVote,
    ReleaseLease,
    RequestLease,
    RequestVote,
    Resigned,
    StopLeading,
    Term,
    TermSeen,
    TimePassed,
    VoteAnswered,
    VotePersisted,
    VoteRequested,
)
from drivetrain.errors import ConfigError, InternalError

A, B, C = (MasterAddress(f"{name}:7") for name in "abc")
LEASE_MS = 1_000


def master(me: MasterAddress = A, *, term: int = 0, voted_for: MasterAddress | None = None) -> Election:
    return Election(
        me, [A, B, C], lease_ms=LEASE_MS, random=Random(1), now_ms=0, term=Term(term), voted_for=voted_for
    )


def elect(election: Election, now_ms: int) -> Term:
    """Bring a master through trial, vote and lease with the help of B."""
    (trial,) = election.step(TimePassed(), now_ms)
    assert isinstance(trial, RequestVote)
    assert trial.is_trial
    persist, ask = election.step(VoteAnswered(B, trial.term, Term(0), True, True), now_ms)
    assert isinstance(persist, PersistVote)
    assert isinstance(ask, RequestVote)
    assert election.step(VotePersisted(persist.term, persist.voted_for), now_ms) == ()
    (lease,) = election.step(VoteAnswered(B, ask.term, ask.term, False, True), now_ms)
    assert isinstance(lease, RequestLease)
    assert not election.leads(now_ms)
    effects = election.step(LeaseAnswered(B, ask.term, ask.term, lease.sent_ms, True), now_ms + 10)
    assert BeginToLead(ask.term) in effects
    return ask.term


def test_a_master_leads_only_with_votes_and_a_lease_of_a_majority() -> None:
    election = master()
    term = elect(election, 500)
    assert election.leads(510)
    assert election.role is Role.LEADER
    assert election.term == term == 1
    election.check()


def test_the_lease_counts_from_the_request_and_ends_before_the_promise() -> None:
    election = master()
    elect(election, 500)
    assert election.lease_until_ms == 500 + LEASE_MS - LEASE_MS // 10
    assert election.leads(1_399)
    assert not election.leads(1_400)


def test_a_leader_that_was_frozen_past_its_lease_stops_at_its_first_event_whatever_it_is() -> None:
    election = master()
    term = elect(election, 500)
    late = election.step(LeaseAnswered(B, term, term, 500, True), 5_000)
    assert any(isinstance(effect, StopLeading) for effect in late)
    assert not election.leads(5_000)
    assert election.role is Role.FOLLOWER


def test_a_renewed_lease_lasts_longer() -> None:
    election = master()
    term = elect(election, 500)
    (renew,) = election.step(TimePassed(), 800)
    assert renew == RequestLease(term, 800)
    election.step(LeaseAnswered(C, term, term, 800, True), 820)
    assert election.leads(1_699)


def test_an_answer_to_a_request_that_is_not_sent_yet_renews_no_lease() -> None:
    election = master()
    term = elect(election, 500)
    until_ms = election.lease_until_ms
    for who in (B, C):
        assert election.step(LeaseAnswered(who, term, term, 10**9, True), 800) == ()
    assert election.lease_until_ms == until_ms


def test_nobody_gets_a_vote_while_a_lease_that_was_granted_is_live() -> None:
    election = master()
    granted = election.step(LeaseRequested(B, Term(1), 77), 100)
    assert granted[0] == PersistVote(Term(1), None)
    assert granted[-1] == AnswerLease(B, Term(1), Term(1), 77, True)
    election.step(VotePersisted(Term(1), None), 101)
    (refusal,) = election.step(VoteRequested(C, Term(2), False), 1_099)
    assert refusal == AnswerVote(C, Term(2), Term(1), False, False)
    persist, vote = election.step(VoteRequested(C, Term(2), False), 1_100)[-2:]
    assert persist == PersistVote(Term(2), C)
    assert vote == AnswerVote(C, Term(2), Term(2), False, True)


def test_one_vote_per_term_also_after_a_restart() -> None:
    election = master(term=3, voted_for=B)
    (refusal,) = election.step(VoteRequested(C, Term(3), False), 2_000)
    assert refusal == AnswerVote(C, Term(3), Term(3), False, False)
    (again,) = election.step(VoteRequested(B, Term(3), False), 2_000)
    assert again == AnswerVote(B, Term(3), Term(3), False, True)


def test_a_master_that_was_restarted_votes_for_nobody_for_a_whole_lease() -> None:
    election = master(term=3, voted_for=B)
    (refusal,) = election.step(VoteRequested(C, Term(4), False), LEASE_MS - 1)
    assert isinstance(refusal, AnswerVote)
    assert not refusal.granted


def test_a_vote_that_could_not_be_persisted_is_persisted_before_it_is_answered_again() -> None:
    election = master()
    first = election.step(VoteRequested(B, Term(1), False), 10)
    assert first[0] == PersistVote(Term(1), B)
    # The shell failed to persist and said nothing; the candidate asks again.
    assert election.step(VoteRequested(B, Term(1), False), 20)[0] == PersistVote(Term(1), B)
    election.step(VotePersisted(Term(1), B), 30)
    assert len(election.step(VoteRequested(B, Term(1), False), 40)) == 1


def test_a_candidate_counts_its_own_vote_only_once_it_is_durable() -> None:
    election = master()
    election.step(TimePassed(), 500)
    _, ask = election.step(VoteAnswered(B, Term(1), Term(0), True, True), 500)
    assert isinstance(ask, RequestVote)
    assert election.step(VoteAnswered(B, ask.term, ask.term, False, True), 510) == ()
    assert election.role is Role.CANDIDATE
    assert election.step(VotePersisted(Term(1), A), 520) == (RequestLease(Term(1), 520),)


def test_one_that_was_cut_off_does_not_depose_a_leader() -> None:
    election = master()
    term = elect(election, 500)
    (answer,) = election.step(VoteRequested(C, Term(9), True), 600)
    assert answer == AnswerVote(C, Term(9), term, True, False)
    assert election.leads(600)


def test_a_leader_that_cannot_write_lets_others_try() -> None:
    election = master()
    term = elect(election, 500)
    assert StopLeading(term, "disk") in election.step(Resigned(term, "disk"), 600)
    assert not election.leads(600)
    assert election.step(TimePassed(), 600 + LEASE_MS - 1) == ()


def test_a_leader_that_resigns_releases_the_others_after_it_has_stopped_leading() -> None:
    election = master()
    term = elect(election, 500)
    effects = election.step(Resigned(term, "it was asked to end"), 600)
    assert effects.index(StopLeading(term, "it was asked to end")) < effects.index(ReleaseLease(term))
    late = election.step(LeaseAnswered(B, term, term, 590, True), 610)
    assert late == ()
    assert not election.leads(610)


def test_a_follower_that_is_released_may_stand_and_vote_at_once() -> None:
    election = master()
    election.step(LeaseRequested(B, Term(1), 77), 100)
    election.step(VotePersisted(Term(1), None), 101)
    election.step(LeaseReleased(B, Term(1)), 200)
    assert election.leader is None
    assert election.step(VoteRequested(C, Term(2), True), 201)[-1] == AnswerVote(
        C, Term(2), Term(1), True, True
    )
    assert RequestVote(Term(2), is_trial=True) in election.step(TimePassed(), 200 + LEASE_MS // 4)
    election.check()


@pytest.mark.parametrize(("leader", "term"), [(C, 1), (B, 0), (B, 2)])
def test_only_the_leader_of_this_term_releases_from_a_promise(leader: MasterAddress, term: int) -> None:
    election = master()
    election.step(LeaseRequested(B, Term(1), 77), 100)
    election.step(VotePersisted(Term(1), None), 101)
    assert election.step(LeaseReleased(leader, Term(term)), 200) == ()
    assert election.leader == B
    assert election.step(VoteRequested(C, Term(2), True), 201)[-1] == AnswerVote(
        C, Term(2), Term(1), True, False
    )


def test_who_was_refused_by_a_fence_is_elected_above_it() -> None:
    election = master()
    term = elect(election, 500)
    effects = election.step(TermSeen(Term(term + 100)), 600)
    assert StopLeading(term, f"there was a leader of term {term + 100}") in effects
    assert PersistVote(Term(term + 100), None) in effects
    assert election.step(TermSeen(term), 610) == ()
    assert elect(election, 600 + 3 * LEASE_MS) > term + 100


def test_time_that_goes_back_and_strangers_change_nothing() -> None:
    election = master()
    election.step(TimePassed(), 100)
    with pytest.raises(InternalError):
        election.step(TimePassed(), 99)
    with pytest.raises(InternalError):
        election.step(VoteRequested(MasterAddress("x:7"), Term(5), False), 200)
    assert election.term == 0


def test_a_list_without_oneself_is_refused() -> None:
    with pytest.raises(ConfigError):
        Election(MasterAddress("x:7"), [A, B], lease_ms=100, random=Random(1), now_ms=0)


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("seed", range(40))
def test_at_most_one_leads_over_lossy_links_and_restarts(seed: int, count: int) -> None:  # noqa: C901
    """The cores alone: a disk that keeps what was persisted, or fails; messages late, twice or never."""
    random = Random(seed)
    names = [MasterAddress(f"m{n}:7") for n in range(count)]
    durable: dict[MasterAddress, tuple[Term, MasterAddress | None]] = dict.fromkeys(names, (Term(0), None))
    leaders: dict[Term, set[MasterAddress]] = {}
    post: list[tuple[int, MasterAddress, object]] = []
    now_ms, has_led = 0, 0

    def start(name: MasterAddress) -> Election:
        term, vote = durable[name]
        return Election(
            name, names, lease_ms=LEASE_MS, random=random, now_ms=now_ms, term=term, voted_for=vote
        )

    def send(to: MasterAddress, event: object) -> None:
        for _ in range(random.choice([0, 1, 1, 1, 1, 2])):
            delay_ms = random.choice([5, 10, 30, 300, 2_000 if random.random() < 0.1 else 20])
            post.append((now_ms + delay_ms, to, event))

    def perform(me: MasterAddress, effects: tuple[ElectionEffect, ...]) -> None:
        for effect in effects:
            match effect:
                case PersistVote(term, vote):
                    if random.random() < 0.05:
                        return
                    durable[me] = (term, vote)
                    perform(me, masters[me].step(VotePersisted(term, vote), now_ms))
                case RequestVote(term, trial):
                    for other in set(names) - {me}:
                        send(other, VoteRequested(me, term, trial))
                case AnswerVote(to, term, known, trial, granted):
                    send(to, VoteAnswered(me, term, known, trial, granted))
                case RequestLease(term, sent_ms):
                    for other in set(names) - {me}:
                        send(other, LeaseRequested(me, term, sent_ms))
                case AnswerLease(to, term, known, sent_ms, granted):
                    send(to, LeaseAnswered(me, term, known, sent_ms, granted))

    masters = {name: start(name) for name in names}
    for _ in range(1_500):
        now_ms += random.choice([5, 10, 20])
        due = sorted((entry for entry in post if entry[0] <= now_ms), key=lambda entry: entry[0])
        post[:] = [entry for entry in post if entry[0] > now_ms]
        for _, to, event in due:
            perform(to, masters[to].step(event, now_ms))  # type: ignore[arg-type]
        for name in names:
            if random.random() < 0.002:
                masters[name] = start(name)
            elif random.random() < 0.9:
                perform(name, masters[name].step(TimePassed(), now_ms))
            masters[name].check()
        leading = [name for name in names if masters[name].leads(now_ms)]
        assert len(leading) <= 1
        has_led += len(leading)
        for name in leading:
            leaders.setdefault(masters[name].term, set()).add(name)
    assert all(len(each) == 1 for each in leaders.values())
    assert has_led > 100
