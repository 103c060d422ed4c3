"""Messages that no correct process would send: of every type, with random, extreme and missing fields.

`Generator` makes them from the types' own descriptions, so that new messages and fields are covered
automatically. `Adversary` is an actor system with the keys of some process, with wrong ones or with none.
`fuzz` is `simulate` for tests that send them: `TESTS_FUZZ` is the number of messages that all of them
send together.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from drivetrain.actor import ActorPath, ActorRef, ActorSystem, Failure, Message, Terminated
from drivetrain.actor.kernel_messages import Identified, Identify, Unwatch, Watch
from drivetrain.actor.message import message_class, tag_of
from drivetrain.actor.path import Address
from drivetrain.actor.provider import Envelope
from drivetrain.actor.remote import MessageTooLargeError, RemoteSettings, attach_remote
from drivetrain.actor.remote.remote import Remote
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import MESSAGE_MODULES, TAKEN
from drivetrain.cluster.access.system_names import Role, read_name, request_prefix
from drivetrain.simulator import Node, simulate

CLASSES: Final[tuple[type[Message], ...]] = (
    *(
        kind
        for module in MESSAGE_MODULES
        for _, kind in sorted(inspect.getmembers(module, inspect.isclass))
        if issubclass(kind, Message) and kind.__module__ == module.__name__
    ),
    Failure,
    Terminated,
    Watch,
    Unwatch,
    Identify,
    Identified,
)

INTEGERS: Final = (0, 1, 2, 3, 7, -1, 1000, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
FLOATS: Final = (0.0, -1.0, 1e308, float("inf"), float("nan"), 5e-324)
TEXTS: Final = ("", "x", "..", "../../etc/passwd", "a\nb", "\x1b[31m\x00", "é" * 50, "0" * 64, "x" * 3000)
JUNK: Final = (None, True, 0, -1, 2**63, 1.5, "", "junk", b"\x00\xff", [], [[[]]], {}, {"a": 1}, [0] * 50)
UNKNOWN: Final = ("dt.poison-pill", "dt.local.poison-pill", "no.such.message", "", "x" * 500, "cluster.\x00")

_DEEPEST: Final = 4

_type_info: Final = functools.cache(types.type_info)  # without the cache it would take most of the time

VARIABLE: Final = "TESTS_FUZZ"
TESTS: Final = 7
"""How many tests share the messages."""


def fuzz(*, messages: int) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """`simulate` a scenario that sends so many messages: two seeds, or its share of `TESTS_FUZZ`."""
    wanted = os.environ.get(VARIABLE)
    seeds = 2 if not wanted else max(1, -(-int(wanted) // (TESTS * messages)))
    return simulate(seeds=seeds, at_most=seeds)


class Generator:
    """Makes messages; `words` are texts that the receiver knows, `likely` types are sent more often.

    `by_field` has values that fields of that name mostly get, so that some messages are meaningful.
    """

    def __init__(
        self,
        random: Random,
        words: Sequence[str],
        paths: Sequence[str],
        likely: Sequence[type[Message]] = (),
        by_field: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    ) -> None:
        self._by_field = by_field
        self._random = random
        self._likely = tuple(likely)
        self._words = tuple(words)
        self._paths = tuple(paths)
        self._extreme = 0.4

    def message(self) -> tuple[str, bytes]:
        """A tag and a body."""
        random = self._random
        if random.random() < 0.03:
            return random.choice(UNKNOWN), msgspec.msgpack.encode(random.choice(JUNK))
        kind = random.choice(self._likely if self._likely and random.random() < 0.7 else CLASSES)
        tag = tag_of(kind)
        how = random.random()
        # A message with many numbers would hardly ever be accepted if each of them could be out of range.
        self._extreme = random.choice((0.0, 0.02, 0.4))
        if how < 0.02:
            return tag, random.randbytes(random.randrange(40))
        # The tag that msgspec looks for is the class's own; see `codec`.
        values = [kind.__struct_config__.tag, *self._fields(kind, wild=0.0 if how < 0.6 else 0.2)]
        if how > 0.9:
            del values[random.randrange(len(values)) :]
        elif how > 0.87:
            values += [random.choice(JUNK)] * 3
        try:
            return tag, msgspec.msgpack.encode(values)
        except OverflowError:
            return tag, msgspec.msgpack.encode(values[:1])

    def _fields(self, kind: type[Any], wild: float, depth: int = 0) -> list[Any]:
        info = _type_info(kind)
        assert isinstance(info, types.StructType)
        return [
            self._random.choice(self._by_field[field.name])
            if field.name in self._by_field and self._random.random() < 0.8
            else self._value(field.type, wild, depth)
            for field in info.fields
        ]

    def _value(self, kind: types.Type, wild: float, depth: int) -> Any:  # noqa: C901 - a table
        random = self._random
        if random.random() < wild:
            return random.choice(JUNK)
        match kind:
            case types.IntType():
                return random.choice(INTEGERS) if random.random() < self._extreme else random.randrange(5)
            case types.FloatType():
                return random.choice(FLOATS)
            case types.StrType():
                return random.choice(self._words if random.random() < 0.7 else TEXTS)
            case types.BytesType():
                return random.randbytes(random.choice((0, 1, 100, 5000)))
            case types.BoolType():
                return random.random() < 0.5
            case types.NoneType():
                return None
            case types.EnumType(cls):
                return random.choice(list(cls)).value
            case types.LiteralType(values):
                return random.choice(values)
            case types.UnionType(members):
                return self._value(random.choice(members), wild, depth)
            case types.StructType(cls):
                if depth >= _DEEPEST:
                    return None
                fields = self._fields(cls, wild, depth + 1)
                tag = [] if kind.tag is None else [kind.tag]
                if kind.array_like:
                    return tag + fields
                return dict(zip((field.encode_name for field in kind.fields), fields, strict=True))
            case (
                types.VarTupleType(item)
                | types.ListType(item)
                | types.SetType(item)
                | types.FrozenSetType(item)
            ):
                count = 0 if depth >= _DEEPEST else random.choice((0, 0, 1, 2, 20))
                return [self._value(item, wild, depth + 1) for _ in range(count)]
            case types.TupleType(items):
                return [self._value(item, wild, depth + 1) for item in items]
            case types.DictType(key, value):
                count = 0 if depth >= _DEEPEST else random.choice((0, 1, 5))
                return {
                    str(self._value(key, 0.0, depth + 1)): self._value(value, wild, depth + 1)
                    for _ in range(count)
                }
            case types.CustomType(cls) if issubclass(cls, ActorRef):
                return random.choice(self._paths)
            case _:
                return random.choice(JUNK)


class _Sent(Message, frozen=True, tag="fuzzing.sent"):
    """Stands for the message in the adversary's own records."""


class Adversary:
    """A system named `name`, with the keys that `secret` gives it; None means that it has no keys."""

    def __init__(self, node: Node, name: str, port: int, secret: str | None) -> None:
        self._node, self._name, self._port, self._secret = node, name, port, secret

    def taken_by(self, role: Role) -> list[type[Message]]:
        """The types of messages that a process of this role accepts from it."""
        name = read_name(self._name)
        taken = TAKEN.get((role, name.role), ()) if name is not None else ()
        return sorted(taken, key=lambda kind: kind.__name__)

    @property
    def own_words(self) -> tuple[str, ...]:
        """The ids under which it may send messages."""
        name = read_name(self._name)
        if name is None or name.app_id is None or name.epoch is None:
            return ()
        prefix = request_prefix(name.app_id, name.epoch)
        return name.app_id, f"{prefix}-0", f"{prefix}-0-9-1"

    async def start(self) -> None:
        """Listen."""
        await self._node.start(self._serve)

    async def _serve(self, node: Node) -> None:
        secret = self._secret
        keys = None if secret is None else Keyring(self._name, lambda: (secret,))
        self.system = ActorSystem(self._name, rng=node.random)
        # Without keys only loopback is permitted: pretend that this host is loopback.
        settings = RemoteSettings(
            host=node.name,
            port=self._port,
            keys=keys or _NoKeys(),
            heartbeat_interval_ms=1_000,
            max_backoff_ms=200,
        )
        remote = await attach_remote(self.system, settings, transport=node.transport, entropy=node.entropy)
        assert isinstance(remote, Remote)
        self._remote = remote

    @property
    def address(self) -> Address:
        """Its own address."""
        return self.system.address

    def send(
        self,
        generator: Generator,
        random: Random,
        target: Address,
        paths: Sequence[str],
        is_end: Callable[[Message], bool],
    ) -> None:
        """Send one message to one of the paths at `target`, from any sender, but none that would
        legitimately end it."""
        tag, body = generator.message()
        while (made := decoded(tag, body)) is not None and is_end(made):
            tag, body = generator.message()
        path = ActorPath.parse(f"{target}{random.choice(paths)}")
        me = ActorPath(self.address, ("user", "nobody"), 3)
        senders = (
            None,
            *(me,) * 6,
            ActorPath(self.address, ("asks", "$9"), 9),
            ActorPath(target, path.names, path.uid),
            ActorPath.parse("drivetrain://master@elsewhere:7~5/user/master#5"),
        )
        envelope = Envelope(path, _Sent(), random.choice(senders))
        try:
            self._remote._places.find(target).deliver(envelope, tag, body)
        except MessageTooLargeError:
            return


def decoded(tag: str, body: bytes) -> Message | None:
    """The message as the receiver decodes it; None when it cannot."""
    kind = message_class(tag)
    if kind is None:
        return None
    with contextlib.suppress(msgspec.MsgspecError, ValueError, OverflowError):
        return msgspec.msgpack.decode(body, type=kind, dec_hook=lambda _, value: value)
    return None


class _NoKeys:
    """Keys that no process of the cluster has."""

    def keys_for(self, peer: str) -> tuple[bytes, ...]:
        return (b"not the right key",)
