"""Who may do what: the keys of each process, and what each takes from which."""

from __future__ import annotations

import inspect
from itertools import product

import pytest

from drivetrain.actor import ActorPath, Message
from drivetrain.actor.kernel_messages import Identify, PoisonPill
from drivetrain.actor.message import tag_of
from drivetrain.actor.path import Address
from drivetrain.actor.remote.inbound_message import InboundMessage
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.permissions import (
    KERNEL,
    MESSAGE_MODULES,
    NEEDS_SENDER,
    TAKEN,
    guard_of,
)
from drivetrain.cluster.access.system_names import (
    ProcessName,
    Role,
    app_master_name,
    executor_name,
    read_name,
    request_prefix,
)
from drivetrain.cluster.messages.applications import ApplicationSpec, ApplicationState, Kill, Restart, Submit
from drivetrain.cluster.messages.executing import ExecutorReport, RegisterExecutor
from drivetrain.cluster.messages.following import Follow, GetStatus
from drivetrain.cluster.messages.launching import Launch, ProcessKind, ReadLog, StopProcess
from drivetrain.cluster.messages.leadership import GetLeader
from drivetrain.cluster.messages.registration import (
    AppMasterReport,
    RegisterAppMaster,
    RegisterWorker,
    WorkerInfo,
)
from drivetrain.cluster.messages.replication import ReadDigest
from drivetrain.cluster.messages.resources import CancelRequest
from drivetrain.errors import ConfigError, InternalError

SECRET = "the secret of the whole cluster"
OTHER = "another secret, of another cluster"
MASTER, WORKER, CLIENT = "master", "worker", "client"
APP, LATER, FOREIGN = "app.wc-1.3", "app.wc-1.4", "app.other-2.3"
EXECUTOR = executor_name("wc-1", 3, "wc-1.3-0-9-1")
SECOND = executor_name("wc-1", 3, "wc-1.3-1-9-2")
FOREIGN_EXECUTOR = executor_name("other-2", 3, "other-2.3-0-9-1")
EVERYBODY = (MASTER, WORKER, CLIENT, APP, LATER, FOREIGN, EXECUTOR, SECOND, FOREIGN_EXECUTOR)

MEET = {
    frozenset(pair)
    for pair in (
        (MASTER,),
        (MASTER, WORKER),
        (MASTER, CLIENT),
        (MASTER, APP),
        (MASTER, EXECUTOR),
        (WORKER,),
        (WORKER, CLIENT),
        (WORKER, APP),
        (WORKER, EXECUTOR),
        (CLIENT, APP),
        (APP, EXECUTOR),
        (EXECUTOR,),
        (EXECUTOR, SECOND),
    )
}
"""Who has a key with whom, of those that have to do with one executor, its application, and the rest."""


def own_keyring(name: str) -> Keyring:
    """The keys of a process as it gets them, not the secret."""
    whole = Keyring(MASTER, lambda: (SECRET,))
    text = SECRET if name == MASTER else whole.text_for(name)
    return Keyring(name, lambda: tuple(text.splitlines()))


# ---- names and keys


def test_names_say_who_a_process_is() -> None:
    assert read_name(app_master_name("wc-1", 3)) == ProcessName(Role.APP_MASTER, "wc-1", 3)
    name = read_name(EXECUTOR)
    assert name is not None
    assert (name.role, name.app_id, name.epoch) == (Role.EXECUTOR, "wc-1", 3)
    assert name.is_launch("wc-1.3-0-9-1")
    assert not name.is_launch("wc-1.3-1-9-2")
    for wrong in ("", "masters", "app", "app.x", "app.x.y", "app.a.b.3", "executor.x.3", "root", "app.x.-1"):
        assert read_name(wrong) is None


def test_names_of_the_longest_applications_are_names_of_systems() -> None:
    longest = "a" * 100 + "-" + "9" * 9
    for name in (app_master_name(longest, 10**9), executor_name(longest, 10**9, "x" * 500)):
        assert read_name(name) is not None
        assert ActorPath.parse(f"drivetrain://{name}@h:1~2/user/a").address.system == name


def test_the_ids_of_one_application_are_not_another_ones() -> None:
    # "a-1" in epoch 2 and "a-1-2" are different applications.
    assert not f"{request_prefix('a-1-2', 3)}-0".startswith(f"{request_prefix('a-1', 2)}-")


@pytest.mark.parametrize(("one", "other"), list(product(EVERYBODY, EVERYBODY)))
def test_two_processes_share_a_key_if_they_have_to_do_with_each_other(one: str, other: str) -> None:
    ours, theirs = own_keyring(one).keys_for(other), own_keyring(other).keys_for(one)
    assert ours == theirs
    related = [{APP, EXECUTOR, SECOND, MASTER, WORKER, CLIENT}]
    related += [{LATER, MASTER, WORKER, CLIENT}, {FOREIGN, FOREIGN_EXECUTOR, MASTER, WORKER, CLIENT}]
    if {one, other} <= related[0]:
        names = frozenset(EXECUTOR if name == SECOND else name for name in (one, other))
        expected = frozenset({one, other}) in MEET or (names in MEET and one != other)
        assert bool(ours) == (expected or one == other == SECOND)
    elif not any({one, other} <= group for group in related):
        assert not ours


def test_no_key_is_used_twice() -> None:
    whole = {name: Keyring(name, lambda: (SECRET,)) for name in EVERYBODY}
    keys: dict[bytes, set[frozenset[str]]] = {}
    for one, other in product(EVERYBODY, EVERYBODY):
        for key in whole[one].keys_for(other):
            keys.setdefault(key, set()).add(frozenset({one, other}))
    lesser = {APP, LATER, FOREIGN, EXECUTOR, SECOND, FOREIGN_EXECUTOR}
    executors = {EXECUTOR, SECOND, FOREIGN_EXECUTOR}
    for pairs in keys.values():
        owners = [pair & lesser for pair in pairs if pair & lesser and not pair <= executors]
        # Of one application's process, and nobody else's.
        assert len({min(owner, key=EVERYBODY[::-1].index) for owner in owners}) <= 1


@pytest.mark.parametrize("holder", [WORKER, CLIENT, APP, EXECUTOR])
def test_what_a_process_holds_does_not_make_the_keys_of_others(holder: str) -> None:
    """Also by another name it has no key of a connection that it takes no part in."""
    text = Keyring(MASTER, lambda: (SECRET,)).text_for(holder)
    whole = {name: Keyring(name, lambda: (SECRET,)) for name in EVERYBODY}
    below = {
        WORKER: {WORKER, APP, LATER, FOREIGN, EXECUTOR, SECOND, FOREIGN_EXECUTOR},
        CLIENT: {CLIENT},
        APP: {APP, EXECUTOR, SECOND},
        EXECUTOR: {EXECUTOR},
    }[holder]
    siblings = {EXECUTOR, SECOND} if holder == EXECUTOR else set()
    for one, other in product(EVERYBODY, EVERYBODY):
        made = set(Keyring(one, lambda: (text,)).keys_for(other))
        right = set(whole[one].keys_for(other))
        if not {one, other} & below and not {one, other} <= siblings:
            assert not made & right, (one, other)


def test_a_client_is_not_a_worker_and_a_worker_not_a_client() -> None:
    for holder, claimed in ((CLIENT, WORKER), (WORKER, CLIENT), (APP, WORKER), (EXECUTOR, APP)):
        text = Keyring(MASTER, lambda: (SECRET,)).text_for(holder)
        right = Keyring(MASTER, lambda: (SECRET,)).keys_for(claimed)
        assert right
        assert Keyring(claimed, lambda text=text: (text,)).keys_for(MASTER) != right  # type: ignore[misc]
        with pytest.raises(ConfigError, match="cannot be made"):
            Keyring(holder, lambda text=text: (text,)).text_for(claimed)  # type: ignore[misc]


def test_two_clusters_have_nothing_in_common() -> None:
    one, other = Keyring(MASTER, lambda: (SECRET,)), Keyring(MASTER, lambda: (OTHER,))
    for name in EVERYBODY:
        assert not set(one.keys_for(name)) & set(other.keys_for(name))


def test_both_secrets_are_good_while_one_replaces_the_other() -> None:
    both = Keyring(WORKER, lambda: (OTHER, SECRET))
    assert both.keys_for(MASTER)[1:] == Keyring(WORKER, lambda: (SECRET,)).keys_for(MASTER)
    launched = Keyring(APP, lambda: tuple(both.text_for(APP).splitlines()))
    assert set(launched.keys_for(MASTER)) & set(Keyring(MASTER, lambda: (SECRET,)).keys_for(APP))
    assert set(launched.keys_for(MASTER)) & set(Keyring(MASTER, lambda: (OTHER,)).keys_for(APP))


@pytest.mark.parametrize(
    "text", ["drivetrain-key:", "drivetrain-key:worker=abc", "drivetrain-key:worker", "short"]
)
def test_a_damaged_key_is_an_error_that_does_not_show_it(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Keyring(WORKER, lambda: (text,))
    assert text.removeprefix("drivetrain-key:") in ("", "short") or text[-3:] not in str(raised.value)


# ---- permissions


class Custom(Message, frozen=True, tag="mine.custom"):
    app_id: str = "whatever"


def address(system: str, host: str = "h") -> Address:
    return Address(system, host, 7, 1)


class Ref:
    """As much of a reference as a guard looks at."""

    def __init__(self, path: ActorPath) -> None:
        self.path = path


def ref(system: str, host: str = "h") -> Ref:
    return Ref(ActorPath(address(system, host), ("user", "a"), 3))


def judge(me: str, peer: str, message: Message, *, has_sender: bool = True) -> str | None:
    sender = ActorPath(address(peer), ("asks", "$9"), 9) if has_sender else None
    return guard_of(me)(
        InboundMessage(address(peer), ActorPath(address(me), ("user", me), 1), sender, message)
    )


SPEC = ApplicationSpec("wc", "", "wc.py")
INFO = WorkerInfo("id", "w", "h", 1, "1", 0)


def launch(owner: str = APP, **changes: object) -> Launch:
    fields: dict[str, object] = {
        "launch_id": "wc-1.3-0-9-1",
        "kind": ProcessKind.EXECUTOR,
        "app_id": "wc-1",
        "epoch": 3,
        "spec": SPEC,
        "slots": 1,
        "owner": ref(owner),
    }
    return Launch(**(fields | changes))  # type: ignore[arg-type]


def report(app_id: str = "wc-1", epoch: int = 3) -> AppMasterReport:
    return AppMasterReport(app_id, epoch, ApplicationState.ACTIVE)


ALLOWED = [
    (MASTER, CLIENT, Submit("id", SPEC)),
    (MASTER, APP, report()),
    (MASTER, APP, RegisterAppMaster("wc-1", 3, ref(APP))),  # type: ignore[arg-type]
    (MASTER, APP, Restart("wc-1", epoch=3)),
    (MASTER, CLIENT, Restart("wc")),
    (MASTER, WORKER, RegisterWorker(INFO, ref(WORKER))),  # type: ignore[arg-type]
    (MASTER, MASTER, ReadDigest(3)),
    (WORKER, MASTER, launch(MASTER, kind=ProcessKind.APP_MASTER)),
    (WORKER, APP, launch()),
    (WORKER, APP, StopProcess("wc-1.3-0-9-1")),
    (APP, EXECUTOR, RegisterExecutor("wc-1.3-0-9-1", "wc-1", 3, ref(EXECUTOR), 1, "h")),  # type: ignore[arg-type]
    (APP, CLIENT, Follow(ref(CLIENT))),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("me", "peer", "message"), ALLOWED, ids=lambda value: type(value).__name__)
def test_what_belongs_to_a_role_arrives(me: str, peer: str, message: Message) -> None:
    assert judge(me, peer, message) is None


REFUSED = [
    # Roles.
    (MASTER, CLIENT, ReadDigest(2**62), "takes no ReadDigest from client"),
    (MASTER, WORKER, Submit("id", SPEC), "takes no Submit from worker"),
    (MASTER, WORKER, report(), "takes no AppMasterReport from worker"),
    (MASTER, CLIENT, RegisterWorker(INFO, ref(CLIENT)), "takes no RegisterWorker from client"),  # type: ignore[arg-type]
    (MASTER, EXECUTOR, report(), "takes no AppMasterReport from executor"),
    (MASTER, APP, Kill("other-2"), "takes no Kill from app"),
    (WORKER, CLIENT, StopProcess("x"), "takes no StopProcess from client"),
    (WORKER, WORKER, StopProcess("x"), "takes no StopProcess from worker"),
    (APP, CLIENT, ExecutorReport("x", 3, (), {}), "takes no ExecutorReport from client"),
    (CLIENT, APP, GetLeader(), "takes no GetLeader from app"),
    # Of the kernel, what stays in its process.
    (MASTER, MASTER, PoisonPill(), "takes no PoisonPill"),
    # In the name of others.
    (MASTER, APP, report("other-2"), "is about other-2, epoch 3"),
    (MASTER, APP, report(epoch=4), "is about wc-1, epoch 4"),
    (MASTER, APP, Restart("other-2", epoch=3), "is about other-2, epoch 3"),
    (MASTER, APP, Restart("wc-1", epoch=4), "is about wc-1, epoch 4"),
    (MASTER, APP, Restart("wc-1"), "is about wc-1, epoch None"),
    (MASTER, APP, Restart("wc-1", 77, 3), "do not replay"),
    (MASTER, APP, RegisterAppMaster("wc-1", 3, ref(FOREIGN)), "speaks for"),  # type: ignore[arg-type]
    (MASTER, WORKER, RegisterWorker(INFO, ref(WORKER, "elsewhere")), "speaks for"),  # type: ignore[arg-type]
    (MASTER, APP, CancelRequest("other-2.3-0", "wc-1"), "names other-2.3-0"),
    (WORKER, APP, launch(FOREIGN), "speaks for"),
    (WORKER, APP, launch(app_id="other-2"), "is about other-2"),
    (WORKER, APP, launch(epoch=4), "epoch 4"),
    (WORKER, APP, launch(kind=ProcessKind.APP_MASTER), "executors only"),
    (WORKER, APP, launch(launch_id="other-2.3-0-9-1"), "names other-2"),
    (WORKER, APP, StopProcess("other-2.3-0-9-1"), "names other-2"),
    (APP, EXECUTOR, ExecutorReport("wc-1.3-1-9-2", 3, (), {}), "of another executor"),
    (APP, CLIENT, Follow(ref(CLIENT, "elsewhere")), "speaks for"),  # type: ignore[arg-type]
    # Nobody.
    (MASTER, "somebody", GetLeader(), "is no process of a cluster"),
]


@pytest.mark.parametrize(
    ("me", "peer", "message", "why"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_does_not_belong_to_a_role_is_refused(me: str, peer: str, message: Message, why: str) -> None:
    refusal = judge(me, peer, message)
    assert refusal is not None
    assert why in refusal


def test_the_answer_goes_to_the_peer_unless_a_message_is_passed_on() -> None:
    def judged(me: str, peer: str, message: Message) -> str | None:
        sender = ActorPath(address(CLIENT, "elsewhere"), ("asks", "$9"), 9)
        return guard_of(me)(
            InboundMessage(address(peer), ActorPath(address(me), ("user", me), 1), sender, message)
        )

    assert "is to go to" in str(judged(MASTER, CLIENT, GetLeader()))
    assert "is to go to" in str(judged(MASTER, CLIENT, Identify()))
    assert judged(WORKER, APP, ReadLog("wc-1")) is None
    assert judged(APP, EXECUTOR, Custom()) is None


def test_a_request_without_a_sender_is_refused() -> None:
    for me, peer, message in (
        (MASTER, WORKER, RegisterWorker(INFO, ref(WORKER))),  # type: ignore[arg-type]
        (APP, CLIENT, GetStatus()),
    ):
        assert judge(me, peer, message) is None
        assert "without a sender" in str(judge(me, peer, message, has_sender=False))


def test_applications_have_messages_of_their_own_among_themselves_and_with_clients() -> None:
    for me, peer in ((APP, EXECUTOR), (EXECUTOR, APP), (EXECUTOR, SECOND), (APP, CLIENT), (CLIENT, APP)):
        assert judge(me, peer, Custom()) is None
    for me, peer in ((MASTER, APP), (MASTER, CLIENT), (WORKER, APP), (MASTER, WORKER)):
        assert "takes no Custom" in str(judge(me, peer, Custom()))


def test_every_message_of_the_cluster_has_a_place_in_the_table() -> None:
    listed = frozenset[type[Message]]().union(*TAKEN.values())
    defined = {
        kind
        for module in MESSAGE_MODULES
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, Message) and kind.__module__ == module.__name__
    }
    assert {kind.__name__ for kind in defined - listed} == set()
    assert listed <= defined
    assert listed >= NEEDS_SENDER
    assert all(not tag_of(kind).startswith("dt.local") for kind in KERNEL | listed)


def test_a_process_must_have_a_name_of_the_cluster() -> None:
    with pytest.raises(InternalError):
        guard_of("somebody")
