"""Messages as bytes: read back exactly, with their references; nothing else gets in, nothing unfit out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.actor import (
    ActorPath,
    ActorRef,
    Address,
    DeadLetter,
    DeadLetterReason,
    Failure,
    MalformedMessageError,
    Message,
    MessageRefusedError,
    NotAMessageError,
    PoisonPill,
    Terminated,
    UnknownMessageError,
)
from drivetrain.actor.codec import MessageCodec
from drivetrain.actor.message import message_class, tag_of

ADDRESS = Address("s", "127.0.0.1", 7070, 5)


class FakeRef(ActorRef):
    """A reference with a path and no system."""

    def __init__(self, path: ActorPath) -> None:
        self._path = path

    @property
    def path(self) -> ActorPath:
        return self._path

    @property
    def system(self) -> Any:
        raise AssertionError("not needed")

    def tell(self, message: Message, sender: ActorRef | None = None) -> None:
        raise AssertionError("not needed")


class Order(Message, tag="test.order"):
    number: int
    text: str
    items: list[str]
    body: bytes
    customer: ActorRef | None = None
    others: dict[str, ActorRef] | None = None


class OldOrder(Message, tag="test.old-order"):
    number: int


class Loose(Message, tag="test.loose"):
    anything: Any


def ref(uid: int, address: Address = ADDRESS) -> FakeRef:
    return FakeRef(ActorPath(address, ("user", f"a{uid}"), uid))


refs = st.builds(ref, st.integers(1, 9))
orders = st.builds(
    Order,
    st.integers(-(2**63), 2**64 - 1),
    st.text(),
    st.lists(st.text(), max_size=3),
    st.binary(),
    st.none() | refs,
    st.dictionaries(st.text(), refs, max_size=3),
)


def codec() -> MessageCodec:
    return MessageCodec(FakeRef)


@given(orders)
def test_messages_are_read_back_with_their_references(order: Order) -> None:
    both = codec()
    assert both.deserialize(*both.serialize(order)) == order


@pytest.mark.parametrize(
    "message", [Failure("code", "what"), Terminated(ref(3)), Order(1, "", [], b"")], ids=repr
)
def test_the_kernels_own_messages_are_read_back(message: Message) -> None:
    both = codec()
    assert both.deserialize(*both.serialize(message)) == message


def test_fields_may_be_added_at_the_end() -> None:
    class Grown(Message, tag="test.grown"):
        number: int
        extra: str = "default"

    both = codec()
    _, old_body = both.serialize(OldOrder(7))
    old_form = old_body.replace(b"\xaetest.old-order", b"\xaatest.grown")
    assert both.deserialize("test.grown", old_form) == Grown(7)
    _, new_body = both.serialize(Grown(7, "more"))
    new_form = new_body.replace(b"\xaatest.grown", b"\xaetest.old-order")
    assert both.deserialize("test.old-order", new_form) == OldOrder(7)


def test_an_unknown_tag_is_a_typed_error() -> None:
    with pytest.raises(UnknownMessageError, match="no-such-tag"):
        codec().deserialize("no-such-tag", b"\x91\xc0")


@given(st.binary(max_size=60))
def test_garbage_is_a_typed_error_or_a_message(body: bytes) -> None:
    try:
        message = codec().deserialize("test.order", body)
    except MalformedMessageError:
        return
    assert isinstance(message, Order)


def test_a_body_under_another_tag_does_not_decode() -> None:
    both = codec()
    _, body = both.serialize(OldOrder(1))
    with pytest.raises(MalformedMessageError):
        both.deserialize("test.order", body)


@pytest.mark.parametrize("text", ["", "drivetrain://", 17, None, ["x"]])
def test_a_reference_that_is_no_path_is_malformed(text: object) -> None:
    body = msgspec.msgpack.encode(["dt.terminated", text, "stopped"])
    with pytest.raises(MalformedMessageError):
        codec().deserialize("dt.terminated", body)


def test_a_deeply_nested_body_is_malformed() -> None:
    body = b"\x92\xaatest.loose" + b"\x91" * 200_000 + b"\xc0"
    with pytest.raises(MalformedMessageError):
        codec().deserialize("test.loose", body)


@pytest.mark.parametrize(
    "value",
    [object(), 2**70, {1: object()}, lambda: 1],
    ids=["an object", "a number of 71 bits", "a dictionary with an object", "a function"],
)
def test_what_cannot_be_sent_is_refused_at_the_sender(value: object) -> None:
    with pytest.raises(MessageRefusedError):
        codec().serialize(Loose(value))


def test_a_message_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(MessageRefusedError):
        codec().serialize(Loose(circle))


def test_references_that_others_cannot_reach_are_not_sent() -> None:
    with pytest.raises(MessageRefusedError, match="cannot reach"):
        codec().serialize(Terminated(ref(1, Address("s", None, None, 5))))


def test_only_messages_are_serialized_and_some_stay_here() -> None:
    with pytest.raises(NotAMessageError):
        codec().serialize("text")  # type: ignore[arg-type]
    letter = DeadLetter(PoisonPill(), None, ref(1).path, DeadLetterReason.STOPPED)
    with pytest.raises(MessageRefusedError):
        codec().serialize(letter)
    assert message_class("dt.local.dead-letter") is None


def test_messages_are_immutable() -> None:
    with pytest.raises(AttributeError):
        OldOrder(1).number = 2  # type: ignore[misc]


def test_two_classes_cannot_share_a_tag_unless_one_replaces_the_other() -> None:
    def define() -> type[Message]:
        class Local(Message):
            x: int = 0

        return Local

    first = define()
    assert tag_of(first) == f"{__name__}.{first.__qualname__}"
    second = define()
    assert message_class(tag_of(second)) is second

    class Clash(Message, tag="test.order"):
        pass

    with pytest.raises(NotAMessageError, match=r"test\.order"):
        tag_of(Clash)
    assert message_class("test.order") is Order


def test_references_are_not_pickled() -> None:
    import pickle

    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(ref(1))
