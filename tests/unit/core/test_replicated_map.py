"""The replicated map against a naive model, and its log under every possible crash and damage."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.cluster.map_log import (
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
from drivetrain.core.cluster.replicated_map import (
    Base,
    DigestCollector,
    IncompleteBaseError,
    MapDigest,
    MapEntry,
    ReplicatedMap,
    StaleTermError,
    Stamp,
    Stamper,
    in_chunks,
    in_pieces,
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
    base = MapDigest(Base(2), {entry.key: entry.stamp for entry in entries})
    for replica in (first, second):
        replica.write(entries, 2)
        assert replica.rebase(base) == []
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
        replica.rebase(MapDigest(Base(2), {"k": stamp}))
    assert replica.values() == {"old": b"1"}
    replica.merge([MapEntry("k", b"v", stamp)])
    replica.rebase(MapDigest(Base(2), {"k": stamp}))
    assert replica.values() == {"k": b"v"}
    replica.check()


def test_a_base_within_a_term_drops_tombstones_and_late_copies_of_what_they_deleted() -> None:
    stamper = Stamper(1, "m")
    kept, old, gone = stamper.entry("kept", b"v"), stamper.entry("old", b"v"), stamper.entry("old", None)
    leader, late = ReplicatedMap(), ReplicatedMap()
    leader.write([kept, old, gone], 1)
    late.write([kept, old], 1)  # the deletion did not reach it
    base = MapDigest(stamper.base, {"kept": kept.stamp})
    after = stamper.entry("new", b"w")
    assert leader.rebase(base) == ["old"]
    leader.write([after], 1)
    assert (len(leader), leader.merge([old])) == (2, [])
    # The one that was late gets what it lacks, then the base, and forgets what was deleted.
    assert late.missing(leader.digest()) == ["new"]
    late.merge(leader.take(["new"], 1_000))
    assert late.rebase(leader.digest()) == ["old"]
    assert late.values() == leader.values() == {"kept": b"v", "new": b"w"}
    assert late.summary() == leader.summary()
    assert leader.missing(late.digest()) == []


def test_what_a_base_within_a_term_left_out_is_void_for_the_next_leader() -> None:
    stamper = Stamper(1, "m")
    kept, old = stamper.entry("kept", b"v"), stamper.entry("old", b"v")
    trimmed, late = ReplicatedMap(), ReplicatedMap()
    for replica in (trimmed, late):
        replica.write([kept, old], 1)
    trimmed.write([stamper.entry("old", None)], 1)
    trimmed.rebase(MapDigest(stamper.base, {"kept": kept.stamp}))
    assert newest([late.digest(), trimmed.digest()]) == {"kept": kept.stamp}


class Write(NamedTuple):
    key: str
    has_value: bool
    reached: frozenset[int]
    trims: bool


WRITES = st.lists(
    st.builds(
        Write,
        st.sampled_from("abcd"),
        st.booleans(),
        # A majority of three, which may differ from write to write.
        st.sampled_from([frozenset(s) for s in ({0, 1}, {0, 2}, {1, 2}, {0, 1, 2})]),
        st.booleans(),
    ),
    max_size=12,
)


class Leaders:
    """Three replicas under leaders that write to majorities, and what must be in them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.replicas = [ReplicatedMap() for _ in range(3)]
        self.model: dict[str, bytes] = {}
        self.late: list[MapEntry] = []

    def gossip(self, to: int, of: int, *, rebases: bool = True) -> None:
        theirs, mine = self.replicas[of], self.replicas[to]
        mine.merge(theirs.take(mine.missing(theirs.digest()), 10**6))
        if rebases:
            mine.rebase(theirs.digest())

    def take_over(self, term: int) -> None:
        majority = [self.replicas[each] for each in self.random.sample(range(3), 2)]
        for replica in majority:
            replica.fence_off(term)
        wanted = newest([replica.digest() for replica in majority])
        entries = [entry for replica in majority for entry in replica.entries.values()]
        found = {e.key: e.value for e in entries if wanted.get(e.key) == e.stamp and e.value is not None}
        assert found == self.model
        self.term, self.stamper = term, Stamper(term, f"m{term}")
        self.live = {key: self.stamper.entry(key, value) for key, value in self.model.items()}
        for replica in majority:
            replica.write(self.live.values(), term)
            replica.rebase(MapDigest(Base(term), {k: e.stamp for k, e in self.live.items()}))

    def write(self, write: Write) -> None:
        key = write.key
        entry = self.stamper.entry(key, f"{self.term}".encode() if write.has_value else None)
        self.late.append(entry)
        for each in write.reached:
            self.replicas[each].write([entry], self.term)
        self.model.pop(key, None)
        self.live.pop(key, None)
        if entry.value is not None:
            self.model[key], self.live[key] = entry.value, entry
        if write.trims:
            base = MapDigest(self.stamper.base, {k: e.stamp for k, e in self.live.items()})
            ready = [replica for replica in self.replicas if not replica.missing(base)]
            for replica in self.random.sample(ready, self.random.randrange(len(ready) + 1)):
                replica.rebase(base)

    def disturb(self) -> None:
        """Gossip, perhaps in part, and copies that come late."""
        if self.random.random() < 0.5:
            to, of = self.random.sample(range(3), 2)
            self.gossip(to, of, rebases=self.random.random() < 0.8)
        if self.random.random() < 0.3:
            self.replicas[self.random.randrange(3)].merge([self.random.choice(self.late)])

    def check(self) -> None:
        for replica in self.replicas:
            replica.check()
            again = restore(decode(snapshot(replica), "log")[0], "log")
            before = (replica.entries, replica.base, replica.summary())
            assert (again.entries, again.base, again.summary()) == before


@given(st.lists(WRITES, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_majority_writes_survive_leaders_bases_and_gossip_and_deletions_stay(
    terms: list[list[Write]], random: Random
) -> None:
    leaders = Leaders(random)
    for term, writes in enumerate(terms, start=1):
        leaders.take_over(term)
        for write in writes:
            leaders.write(write)
            leaders.disturb()
            leaders.check()
    for to, of in [(0, 1), (1, 2), (2, 0)] * 2:
        leaders.gossip(to, of)
    assert all(replica.values() == leaders.model for replica in leaders.replicas)


def test_a_digest_travels_in_pieces_that_come_in_any_order_and_twice() -> None:
    digest = MapDigest(Base(3, 4), {f"key-{n}": Stamp(3, n, "m") for n in range(50)})
    pieces = in_pieces(digest, 500)
    assert len(pieces) > 3
    collector = DigestCollector()
    count = len(pieces)
    assert collector.add("a", 1, 0, count, pieces[0]) is None
    for number in [*range(1, count)][::-1] * 2:  # of the next series; the first is begun in vain
        assert collector.add("a", 2, number, count, pieces[number]) is None
        assert collector.add("b", 2, number, count, pieces[number]) is None
    assert collector.add("a", 2, count, count, pieces[0]) is None
    assert collector.add("a", 2, 0, count, pieces[0]) == digest
    assert in_pieces(MapDigest(Base(), {}), 500) == [MapDigest(Base(), {})]


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
    Rebased(Base(1, 5), ("gone",)),
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


def test_a_header_torn_within_and_followed_by_zeros_is_a_torn_tail() -> None:
    last = encode(RECORDS[1])
    for written in range(len(last)):
        for more in (0, 1, 600):
            records, length = decode(DATA + last[:written].ljust(len(last) + more, b"\0"), "log")
            assert (records, length) == (RECORDS, len(DATA)), (written, more)


def test_a_sector_that_was_not_written_is_a_torn_tail_unless_something_was_appended_after_it() -> None:
    stamper = Stamper(1, "m")
    first = encode(Written((stamper.entry("a", b"x" * 100),)))
    last = encode(Written((stamper.entry("b", b"y" * 3_000),)))
    data = first + last
    for begin in (0, 512, 1024, len(data) // 512 * 512):
        hole_begin, hole_end = max(begin, len(first)), min(begin + 512, len(data))
        torn = data[:hole_begin] + bytes(hole_end - hole_begin) + data[hole_end:]
        assert decode(torn, "log")[1] == len(first)
        with pytest.raises(CorruptLogError):
            decode(torn + first, "log")


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
    replica.rebase(MapDigest(Base(base), {}))
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
