"""Messages: what actors send to each other.

Problem: a message crosses processes, so both sides must agree on what it is without accepting code from each
other (no pickle), and sender and receiver share it, so neither may change it.

Design: a message is a frozen msgspec struct derived from `Message` (`frozen=True` is inherited; type checkers
require it again). Its tag names it on the wire: the class's own, as in `tag="billing.paid"`, else its module
and qualified name (declare a tag for classes of a program that one process runs and another imports). Fields
are encoded in order (`array_like`): if new ones are added at the end, with a default, old and new processes
understand each other.

Invariants:
1. Messages are immutable.
2. Every message class has one tag, and every tag one message class (checked on first use of either;
   defining a class again in the same place, as a reload does, replaces it).

Called by everyone; the kernel's own messages are in `kernel_messages`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from drivetrain.actor.actor_errors import NotAMessageError

LOCAL_TAG: Final = "dt.local."
"""Classes whose tag begins with this are for one process only: they are never sent, and never decoded."""

_unregistered: Final[list[type[Message]]] = []
_by_tag: Final[dict[str, type[Message]]] = {}


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base of all messages; subclasses declare fields.

    >>> class Paid(Message, frozen=True, tag="doc.paid"):
    ...     order: int
    >>> Paid(7)
    Paid(order=7)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # msgspec has not set the class's tag yet: it is read on the first look-up.
        _unregistered.append(cls)


def tag_of(cls: type[Message]) -> str:
    """Return the tag of a message class; raises `NotAMessageError` when it may not be sent."""
    if _unregistered:
        _register_pending()
    tag = _own_tag(cls)
    if tag.startswith(LOCAL_TAG):
        raise NotAMessageError("messages of this class stay in their process", where=_place(cls))
    if _by_tag.get(tag) is not cls:
        raise NotAMessageError(
            f"the tag {tag!r} means another message class",
            where=_place(cls),
            got=_place(_by_tag[tag]),
            remedy='give one of them its own tag: class Name(Message, tag="...")',
        )
    return tag


def message_class(tag: str) -> type[Message] | None:
    """Return the message class with this tag, or None."""
    if _unregistered:
        _register_pending()
    return _by_tag.get(tag)


def require_message(message: object) -> None:
    """Raise `NotAMessageError` unless `message` is one."""
    if not isinstance(message, Message):
        raise NotAMessageError(
            "only messages can be sent to actors",
            expected="an instance of a class derived from drivetrain.actor.Message",
            got=repr(message)[:200],
        )


def _own_tag(cls: type[Message]) -> str:
    tag = cls.__struct_config__.tag
    if not isinstance(tag, str):
        raise NotAMessageError("the tag of a message class must be text", where=_place(cls), got=repr(tag))
    # msgspec's own default is the bare name, which two modules may well share.
    return _place(cls) if tag == cls.__name__ else tag


def _register_pending() -> None:
    while _unregistered:
        cls = _unregistered.pop(0)
        tag = _own_tag(cls)
        other = _by_tag.get(tag)
        if tag.startswith(LOCAL_TAG):
            continue
        # The same place means a reload, which replaces; another place is a clash that `tag_of` reports.
        if other is None or _place(other) == _place(cls):
            _by_tag[tag] = cls


def _place(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
