"""The replicated map against a naive model, and its log under every possible crash and damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.map_log import (
    CorruptLogError,
    Fenced,
    Rebased,
    Record,
    Voted,
    Written,
    decode,
    encode,
    last_vote,
    restore,
    snapshot,
)
from drivetrain.core.replicated_map import (
    IncompleteBaseError,
    MapDigest,
    MapEntry,
    ReplicatedMap,
    StaleTermError,
    Stamp,
    Stamper,
    in_chunks,
    newest,
)

ENTRIES = st.builds(
    MapEntry,
    st.sampled_from("abc"),
    st.one_of(st.none(), st.binary(max_size=3)),
    st.builds(Stamp, st.integers(1, 4), st.integers(1, 4), st.sampled_from(["m1", "m2"])),
)


@given(st.lists(ENTRIES), st.randoms(use_true_random=False))
def test_the_highest_stamp_wins_in_any_order_and_however_often(
    entries: list[MapEntry], random: object
) -> None:
    unique = list({(entry.key, entry.stamp): entry for entry in entries}.values())
    shuffled = unique * 2
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    replica = ReplicatedMap()
    for entry in shuffled:
        replica.merge([entry])
    model = {}
    for entry in sorted(unique, key=lambda entry: entry.stamp):
        model[entry.key] = entry
    assert dict(replica.entries) == model
    replica.check()


def test_a_write_of_an_older_term_is_refused_and_changes_nothing() -> None:
    replica = ReplicatedMap()
    replica.fence_off(5)
    with pytest.raises(StaleTermError) as error:
        replica.write([Stamper(4, "m").entry("k", b"v")], 4)
    assert error.value.fence == 5
    assert not replica.entries


def test_a_tombstone_hides_what_it_deleted_from_older_copies() -> None:
    stamper = Stamper(1, "m")
    old, gone = stamper.entry("k", b"v"), stamper.entry("k", None)
    replica = ReplicatedMap()
    replica.merge([gone])
    assert replica.merge([old]) == []
    assert replica.values() == {}
    assert len(replica) == 1


def test_what_a_majority_did_not_see_is_void_after_the_next_leader_has_taken_over() -> None:
    seen, unseen = Stamper(1, "m1").entry("k", b"acknowledged"), Stamper(1, "m1").entry("x", b"lost")
    first, second, third = ReplicatedMap(), ReplicatedMap(), ReplicatedMap()
    for replica in (first, second, third):
        replica.write([seen], 1)
    third.write([unseen], 1)
    wanted = newest([first.digest(), second.digest()])
    stamper = Stamper(2, "m2")
    entries = [stamper.entry(key, first.entries[key].value) for key in wanted]
    base = MapDigest(2, {entry.key: entry.stamp for entry in entries})
    for replica in (first, second):
        replica.write(entries, 2)
        assert replica.rebase(base)
    assert first.merge([unseen]) == []
    assert third.missing(first.digest()) == ["k"]
    third.merge(first.take(["k"], 1_000))
    third.rebase(first.digest())
    assert first.values() == second.values() == third.values() == {"k": b"acknowledged"}
    assert first.summary() == third.summary()


def test_a_base_is_not_taken_over_before_all_of_it_is_here() -> None:
    replica = ReplicatedMap()
    replica.merge([Stamper(1, "m").entry("old", b"1")])
    stamp = Stamp(2, 1, "m")
    with pytest.raises(IncompleteBaseError):
        replica.rebase(MapDigest(2, {"k": stamp}))
    assert replica.values() == {"old": b"1"}
    replica.merge([MapEntry("k", b"v", stamp)])
    replica.rebase(MapDigest(2, {"k": stamp}))
    assert replica.values() == {"k": b"v"}
    replica.check()


def test_chunks_stay_below_the_limit_and_lose_nothing() -> None:
    entries = [Stamper(1, "m").entry(f"k{n}", b"x" * 100) for n in range(20)]
    chunks = in_chunks(entries, 500)
    assert [entry for chunk in chunks for entry in chunk] == entries
    assert len(chunks) > 5
    assert in_chunks([], 500) == []


# ---- the log

RECORDS: list[Record] = [
    Fenced(1),
    Written((Stamper(1, "m").entry("a", b"12345"),)),
    Written((Stamper(1, "m").entry("b", None), Stamper(1, "m").entry("c", b""))),
    Rebased(1),
]
DATA = b"".join(map(encode, RECORDS))


def test_a_log_cut_off_anywhere_gives_a_prefix_of_its_records() -> None:
    ends = [0]
    for record in RECORDS:
        ends.append(ends[-1] + len(encode(record)))
    for cut in range(len(DATA) + 1):
        records, length = decode(DATA[:cut], "log")
        whole = max(at for at, end in enumerate(ends) if end <= cut)
        assert records == RECORDS[:whole]
        assert length == ends[whole]


def test_zeros_where_a_file_was_extended_are_a_torn_tail() -> None:
    records, length = decode(DATA + bytes(50), "log")
    assert records == RECORDS
    assert length == len(DATA)
    last = encode(RECORDS[1])
    records, length = decode(DATA + last[:-3] + bytes(3) + bytes(20), "log")
    assert length == len(DATA)


def test_any_damaged_byte_of_what_was_durable_is_noticed_or_a_torn_last_record() -> None:
    for at in range(len(DATA)):
        damaged = DATA[:at] + bytes([DATA[at] ^ 0x41]) + DATA[at + 1 :]
        with pytest.raises(CorruptLogError):
            decode(damaged, "log")


@given(st.lists(ENTRIES), st.integers(0, 3))
def test_a_snapshot_brings_the_whole_map_back(entries: list[MapEntry], base: int) -> None:
    replica = ReplicatedMap()
    replica.fence_off(5)
    replica.merge(entries)
    replica.rebase(MapDigest(base, {}))
    records, _ = decode(snapshot(replica), "log")
    again = restore(records, "log")
    assert (again.entries, again.base, again.fence) == (replica.entries, replica.base, replica.fence)
    again.check()


def test_the_last_vote_counts_and_a_vote_is_no_map() -> None:
    assert last_vote([Voted(1, "a"), Voted(2, None)], "vote") == Voted(2, None)
    assert last_vote([], "vote") is None
    with pytest.raises(CorruptLogError):
        last_vote([Fenced(1)], "vote")
    with pytest.raises(CorruptLogError):
        restore([Voted(1, "a")], "log")
