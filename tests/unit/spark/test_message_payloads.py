"""Messages packed by bucket and key, beside a loop that puts each into a list of its key."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, cast

import pyarrow as pa
import pytest

from drivetrain import PersistentTask, State, agg
from drivetrain.api.operations import Process
from drivetrain.api.stream import process
from drivetrain.core.state.paged_state import bucket_of
from drivetrain.core.state.state_keys import canonical_key, encoded_key
from drivetrain.spark.compile import message_payloads, persistent_packs
from drivetrain.spark.compile.message_payloads import MessageForm, entries_of
from drivetrain.spark.compile.persistent_packs import MessagePack

NAN = float("nan")
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "b", "", "é", None, *(f"k{n}" for n in range(60))]),
    "long": (pa.int64(), [0, -1, 2**62, None]),
    "binary": (pa.binary(), [b"", b"\x00", None]),
    "double": (pa.float64(), [0.0, -0.0, NAN, 1.5, None]),
    "bool": (pa.bool_(), [True, False, None]),
    "list": (pa.list_(pa.int32()), [[1], [], [1, 2], None]),
}


class ByColumn(PersistentTask[Any, Any]):
    key = "key"
    state = State(agg.count())

    def on_next(self, message: Any) -> list[int]:
        return []


class ByFunction(ByColumn):
    def key(self, message: Any) -> Any:  # type: ignore[override]
        return message.n % 7


def batches(kind: str, draw: random.Random, rows: int) -> list[pa.RecordBatch]:
    type_, values = KEYS[kind]
    found, number = [], 0
    while number < rows:
        size = draw.choice([0, 1, 7, 200])
        numbers = range(number, number + size)
        columns = [
            pa.array([draw.choice(values) for _ in numbers], type_),
            pa.array(numbers, pa.int64()),
            pa.array([draw.randrange(10**15) for _ in numbers], pa.timestamp("us", "UTC")),
        ]
        found.append(pa.RecordBatch.from_arrays(columns, ["key", "n", "__ts"]))
        number += size
    return found


def pack_by(keys: tuple[str, ...], form: MessageForm) -> MessagePack:
    operation = cast(Process, process(ByColumn if keys else ByFunction, 1, (), None))
    return MessagePack(operation, "task", keys, form.columns, form.message, form.timed)


def packed(pack: MessagePack, given: list[pa.RecordBatch], form: MessageForm) -> dict[bytes, list[Any]]:
    """The messages of each key, with their timestamps."""
    found: dict[bytes, list[Any]] = defaultdict(list)
    for made in pack(iter(given)):
        assert len(set(made.column("bucket").to_pylist())) == made.num_rows
        for bucket, payload in zip(
            made.column("bucket").to_pylist(), made.column("payload").to_pylist(), strict=True
        ):
            for key, stamps, messages in entries_of(payload, form):
                assert bucket_of(key) == bucket
                times = [None] * len(messages) if stamps is None else stamps
                found[key] += [(ts, m.n) for ts, m in zip(times, messages, strict=True)]
    return found


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("many", [400_000, 30])
@pytest.mark.parametrize("keys", [("key",), ("key", "n"), ()])
def test_each_message_is_packed_once_with_its_key_and_the_messages_of_a_key_keep_their_order(
    kind: str, timed: bool, many: int, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistent_packs, "_MANY", many)
    form = MessageForm(("key", "n"), None, timed=timed)
    pack = pack_by(keys, form)
    given = batches(kind, random.Random(f"{kind}{many}"), 700)
    wanted: dict[bytes, list[Any]] = defaultdict(list)
    for batch in given:
        stamps = batch.column("__ts").cast(pa.int64()).to_pylist()
        for key, n, ts in zip(
            batch.column("key").to_pylist(), batch.column("n").to_pylist(), stamps, strict=True
        ):
            one = canonical_key(key)
            group = one if keys == ("key",) else (one, n) if keys else n % 7
            wanted[encoded_key(group)].append((ts if timed else None, n))
    assert packed(pack, given, form) == wanted


def test_many_keys_are_sorted_digit_by_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_payloads, "_SHORT", 8)
    form = MessageForm(("key", "n"), None, timed=False)
    pack = MessagePack(
        cast(Process, process(ByColumn, 1, (), None)), "task", ("key", "n"), *vars(form).values()
    )
    found = packed(pack, batches("text", random.Random(1), 700), form)
    assert sorted(n for messages in found.values() for _, n in messages) == list(
        range(sum(map(len, found.values())))
    )
    ordered = list(message_payloads._stable_order(message_payloads.np.array([9, 700, 9, 8, 0, 700]), 701))
    assert ordered == [4, 3, 0, 2, 1, 5]


def test_what_is_held_is_bounded_by_its_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistent_packs, "_MANY_BYTES", 100)
    form = MessageForm(("key", "n"), None, timed=False)
    pack = pack_by(("key",), form)
    given = [b for b in batches("long", random.Random(2), 700) if b.num_rows == 200]
    assert len(list(pack(iter(given)))) == len(given)
