"""State that changes by transactions: what the reference says of it, and a naive model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drivetrain.core.state.key_value_state import NO_TRANSACTION, KeyValueState
from drivetrain.errors import InternalError
from nightly_run import examples


def test_reads_see_uncommitted_writes() -> None:
    state = KeyValueState[str, int]()
    state.put("a", 1)
    assert state.get("a") == 1
    state.prepare_commit(0)
    assert state.get("a") == 1
    state.delete("a")
    assert state.get("a") is None
    assert state.get("a", "none") == "none"
    state.put("b", 2)
    assert dict(state) == {"b": 2}


def test_a_transaction_commits_what_was_put_before_it_was_prepared_and_no_more() -> None:
    state = KeyValueState[str, int]()
    state.put("a", 1)
    state.prepare_commit(0)
    state.put("a", 2)
    state.put("b", 2)
    state.commit(0)
    assert dict(state) == {"a": 2, "b": 2}
    state.rollback()
    assert dict(state) == {"a": 1}


def test_preparing_a_higher_transaction_while_one_is_pending_is_an_error_and_the_same_overwrites() -> None:
    state = KeyValueState[str, int]()
    state.put("a", 1)
    state.prepare_commit(3)
    with pytest.raises(InternalError, match="4 is prepared while 3"):
        state.prepare_commit(4)
    state.put("a", 2)
    state.prepare_commit(3)
    state.commit(3)
    state.rollback()
    assert state.get("a") == 2


def test_commit_of_anything_but_the_prepared_transaction_is_an_error_that_changes_nothing() -> None:
    state = KeyValueState[str, int]()
    with pytest.raises(InternalError, match="0 is committed, and None is prepared"):
        state.commit(0)
    with pytest.raises(InternalError):
        state.commit(NO_TRANSACTION)
    state.put("a", 1)
    state.prepare_commit(1)
    for other in (0, 2):
        with pytest.raises(InternalError):
            state.commit(other)
    assert state.prepared == 1
    state.commit(1)
    with pytest.raises(InternalError, match="1 is prepared, and 1 is committed"):
        state.prepare_commit(1)


def test_committing_the_committed_transaction_again_does_nothing() -> None:
    state = KeyValueState[str, int]()
    state.put("a", 1)
    state.prepare_commit(0)
    state.commit(0)
    state.put("a", 2)
    state.commit(0)
    assert state.get("a") == 2
    state.rollback()
    assert state.get("a") == 1


def test_rollback_restores_a_copy_and_nobody_outside_holds_what_is_inside() -> None:
    state = KeyValueState[str, list[int]]()
    given = [1]
    state.put("a", given)
    given.append(2)
    state.prepare_commit(0)
    state.commit(0)
    state.rollback()
    taken = state.get("a", [])
    taken.append(3)
    for _, value in state:
        value.append(4)
    state.rollback()
    assert state.get("a") == [1]
    saved = state.saved()
    saved.values["a"].append(5)
    assert state.get("a") == [1]


def test_what_was_prepared_survives_a_crash_and_can_be_committed_then() -> None:
    state = KeyValueState[str, int]()
    state.put("a", 1)
    state.put("b", 1)
    state.prepare_commit(0)
    state.commit(0)
    state.put("a", 2)
    state.delete("b")
    state.prepare_commit(1)
    state.put("c", 9)
    again = KeyValueState(state.saved())
    assert dict(again) == {"a": 2}
    again.commit(1)
    again.rollback()
    assert dict(again) == {"a": 2}


class AgainstAModel(RuleBasedStateMachine):
    """Three whole dictionaries say the same."""

    def __init__(self) -> None:
        super().__init__()
        self.state = KeyValueState[str, int]()
        self.now: dict[str, int] = {}
        self.pending: tuple[int, dict[str, int]] | None = None
        self.kept: tuple[int, dict[str, int]] = (NO_TRANSACTION, {})

    @rule(key=st.sampled_from("abc"), value=st.integers(0, 9))
    def put(self, key: str, value: int) -> None:
        self.state.put(key, value)
        self.now[key] = value

    @rule(key=st.sampled_from("abcd"))
    def delete(self, key: str) -> None:
        self.state.delete(key)
        self.now.pop(key, None)

    @rule(above=st.integers(1, 3))
    def prepare(self, above: int) -> None:
        txid = self.pending[0] if self.pending else self.kept[0] + above
        self.state.prepare_commit(txid)
        self.pending = (txid, dict(self.now))

    @precondition(lambda self: self.pending is not None)
    @rule()
    def commit(self) -> None:
        assert self.pending is not None
        self.state.commit(self.pending[0])
        self.kept, self.pending = self.pending, None

    @rule(txid=st.integers(-1, 12))
    def refused(self, txid: int) -> None:
        legal = {self.pending[0]} if self.pending else {self.kept[0]} - {NO_TRANSACTION}
        if txid not in legal:
            with pytest.raises(InternalError):
                self.state.commit(txid)
        if txid <= self.kept[0] or (self.pending and txid != self.pending[0]):
            with pytest.raises(InternalError):
                self.state.prepare_commit(txid)

    @rule()
    def rollback(self) -> None:
        self.state.rollback()
        self.now, self.pending = dict(self.kept[1]), None

    @rule()
    def crash(self) -> None:
        self.state = KeyValueState(self.state.saved())
        self.now = dict(self.pending[1] if self.pending else self.kept[1])

    @invariant()
    def is_the_same(self) -> None:
        self.state.check()
        found: dict[str, Any] = dict(self.state)
        assert found == self.now
        assert {key: self.state.get(key) for key in "abcd" if self.state.get(key) is not None} == self.now


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(max_examples=examples(60), stateful_step_count=30)
