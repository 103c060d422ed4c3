"""Messages as bytes and back.

Problem: messages cross processes. The bytes may come from an old version or be garbage, and must never
become code.

Design: a message is its class's tag and a msgpack body. The body begins with the tag that msgspec knows
(the explicit one, or the class's bare name), so a body that was swapped with another does not decode.
References are encoded as the text of their path, and decoded as references of the receiving system. Encoders
and decoders are created once per class.

Invariants:
1. `deserialize(*serialize(m)) == m`, when the fields' types are declared (a reference in a field of type
   `object` is decoded as text).
2. `deserialize` returns only instances of registered message classes.

Called by the remote layer, through `ActorSystem.codec`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from drivetrain.actor.actor_errors import (
    MalformedMessageError,
    MessageRefusedError,
    NotAMessageError,
    UnknownMessageError,
)
from drivetrain.actor.message import Message, message_class, require_message, tag_of
from drivetrain.actor.path import ActorPath
from drivetrain.actor.reference import ActorRef


class MessageCodec:
    """Serializes the messages of one system; `resolve` makes its references from paths."""

    def __init__(self, resolve: Callable[[ActorPath], ActorRef]) -> None:
        self._resolve: Final = resolve
        self._encoder: Final = msgspec.msgpack.Encoder(enc_hook=_encode_reference)
        self._decoders: Final[dict[str, msgspec.msgpack.Decoder[Message]]] = {}
        self._tags: Final[dict[type[Message], str]] = {}

    def serialize(self, message: Message) -> tuple[str, bytes]:
        """Return the tag and the body of `message`.

        Raises `MessageRefusedError` when it cannot be sent, `NotAMessageError` when it is not a message.
        """
        tag = self._tags.get(type(message))
        if tag is None:
            tag = self._tag(message)
        try:
            return tag, self._encoder.encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise MessageRefusedError(
                f"a message of type {tag!r} cannot be serialized: {error}",
                remedy="use fields that msgspec can encode: numbers, text, bytes, lists, mappings, structs, "
                "references",
            ) from error

    def deserialize(self, tag: str, body: bytes | memoryview) -> Message:
        """Return the message; raises `UnknownMessageError` or `MalformedMessageError`."""
        decoder = self._decoders.get(tag) or self._new_decoder(tag)
        try:
            return decoder.decode(body)
        except Exception as error:  # the class's own checks may raise anything
            raise MalformedMessageError(
                f"a message does not decode as {tag!r}: {error}",
                remedy="both systems must run compatible versions of the message class",
            ) from error

    def _tag(self, message: Message) -> str:
        require_message(message)
        try:
            tag = self._tags[type(message)] = tag_of(type(message))
        except NotAMessageError as error:
            raise MessageRefusedError(
                "a message of this class cannot be sent", where=error.where, remedy=error.remedy
            ) from error
        return tag

    def _new_decoder(self, tag: str) -> msgspec.msgpack.Decoder[Message]:
        cls = message_class(tag)
        if cls is None:
            raise UnknownMessageError(
                f"no message class has the tag {tag[:200]!r}",
                remedy="import the module that defines it, and run compatible versions on both sides",
            )
        decoder = msgspec.msgpack.Decoder(cls, dec_hook=self._decode_reference)
        self._decoders[tag] = decoder
        return decoder

    def _decode_reference(self, wanted: type, text: Any) -> ActorRef:
        if not (isinstance(wanted, type) and issubclass(wanted, ActorRef) and isinstance(text, str)):
            raise TypeError(f"expected the path of an actor as {wanted!r}, got {type(text).__name__}")
        return self._resolve(ActorPath.parse(text))


def _encode_reference(value: object) -> str:
    if not isinstance(value, ActorRef):
        raise TypeError(f"{type(value).__qualname__} is not a type that can be sent")
    path = value.path
    if not path.address.is_remote_capable:
        raise ValueError(f"{path} belongs to a system that other processes cannot reach")
    return str(path)
