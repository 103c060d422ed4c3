"""The mapping in pages, against a dict."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.state.paged_state import BUCKETS, PagedState, bucket_of
from drivetrain.errors import InputError

CHANGES = st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=40)), max_size=400)


def key(number: int) -> bytes:
    return f"key {number}".encode()


@given(st.lists(CHANGES, max_size=4))
def test_it_holds_what_a_dict_would_hold_however_often_it_is_saved(
    rounds: list[list[tuple[int, bytes]]],
) -> None:
    state, model = PagedState(), dict[bytes, bytes]()
    for changes in rounds:
        for number, value in changes:
            state[key(number)] = value
            model[key(number)] = value
        assert dict(state.items()) == model
        state = PagedState(state.saved())
    assert len(state) == len(model)
    assert {k: state.get(k) for k in map(key, range(201)) if k in state} == model
    assert sorted(state.keys()) == sorted(model)


def test_only_the_pages_that_are_touched_are_decoded() -> None:
    state = PagedState()
    for number in range(10_000):
        state[key(number)] = b"value"
    again = PagedState(state.saved())
    again[key(5)] = b"another"
    assert sum(page is not None for page in again._pages) == 1
    last = PagedState(again.saved())
    assert (last.get(key(5)), last.get(key(6)), len(last)) == (b"another", b"value", 10_000)


def test_the_same_changes_give_the_same_bytes() -> None:
    def made() -> bytes:
        state = PagedState()
        for number in range(500):
            state[key(number)] = b"%d" % number
        return state.saved()

    assert made() == made()


def test_pages_stay_small_in_a_bucket_of_keys() -> None:
    ours = [k for k in map(key, range(100_000)) if bucket_of(k) == 3]
    state = PagedState()
    for k in ours:
        state[k] = b""
    assert max(len(page or ()) for page in state._pages) < 50


def test_buckets_do_not_depend_on_the_process() -> None:
    assert [bucket_of(key(n)) for n in range(4)] == [zlib.crc32(key(n)) % BUCKETS for n in range(4)]


@given(st.data())
def test_what_was_cut_or_changed_is_told_as_damage_or_decodes(data: st.DataObject) -> None:
    state = PagedState()
    for number in range(60):
        state[key(number)] = b"value"
    saved = bytearray(state.saved())
    if data.draw(st.booleans()):
        saved = saved[: data.draw(st.integers(0, len(saved) - 1))]
    else:
        saved[data.draw(st.integers(0, len(saved) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        dict(PagedState(bytes(saved)).items())
    except InputError as error:
        assert "damaged" in str(error)  # noqa: PT017 - a changed byte inside a value is the caller's to find


def test_a_cut_table_is_damage() -> None:
    with pytest.raises(InputError, match="damaged"):
        PagedState(PagedState().saved()[:-1])
