"""The boundary of application masters: who suffers when the handling of a message raises."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.actor import ActorPath, Failure, Message
from drivetrain.cluster.access.system_names import app_master_name, executor_name
from drivetrain.cluster.app_master.app_master_messages import AskOutcome, Tick
from drivetrain.cluster.app_master.message_boundary import MessageBoundary
from drivetrain.cluster.messages.executing import Prepared
from drivetrain.cluster.messages.following import ErrorView, GetStatus
from drivetrain.errors import InternalError, PeerViolationError

EXECUTOR = executor_name("wc-1", 1, "wc-1.1-0-9-1")


class Owner:
    """An application master, as the boundary sees it."""

    def __init__(self) -> None:
        self.noted: list[ErrorView] = []
        self.failures: list[Exception] = []
        self.recoveries = 0

    def note(self, error: ErrorView) -> None:
        self.noted.append(error)

    def fail(self, error: Exception) -> None:
        self.failures.append(error)

    def recovered(self) -> None:
        self.recoveries += 1
        raise RuntimeError("and this fails, too")


@dataclass
class Sender:
    """Whoever has sent a message."""

    system: str
    expects_answer: bool = True
    told: list[Message] = field(default_factory=list)

    @property
    def path(self) -> ActorPath:
        return ActorPath.parse(f"drivetrain://{self.system}@box:7~5/user/x#3")

    def tell(self, message: Message) -> None:
        self.told.append(message)


def boundary(sender: Sender | None, *, are_hooks_ours: bool = True) -> tuple[Owner, MessageBoundary]:
    owner = Owner()
    me = SimpleNamespace(path=ActorPath.parse(f"drivetrain://{app_master_name('wc-1', 1)}@a:7~5/user/m#1"))
    context: Any = SimpleNamespace(sender=sender, me=me)
    return owner, MessageBoundary(owner, context, are_hooks_ours=are_hooks_ours)


def raising(error: Exception) -> Any:
    def handle(*_: object) -> None:
        raise error

    return handle


@pytest.mark.parametrize("system", ["client", "worker", "master", EXECUTOR])
def test_a_message_of_another_process_is_refused_and_its_sender_answered(system: str) -> None:
    sender = Sender(system)
    owner, made = boundary(sender)
    made.take(GetStatus(), raising(PeerViolationError("a negative offset")))
    assert owner.failures == []
    assert owner.recoveries == 1
    assert [(type(m), getattr(m, "code", None)) for m in sender.told] == [(Failure, "peer-violation")]
    assert owner.noted[:-1] == [], "what is wrong with a message is no error of the application"


@pytest.mark.parametrize("error", [KeyError("x"), InternalError("an invariant")], ids=["bug", "invariant"])
def test_a_defect_of_ours_does_not_end_the_application_and_is_shown(error: Exception) -> None:
    owner, made = boundary(Sender(EXECUTOR))
    for _ in range(5):
        made.take(GetStatus(), raising(error))
    assert owner.failures == []
    shown = [view for view in owner.noted if "GetStatus" in view.what]
    assert len(shown) == 3, "the 1st, the 2nd and the 4th time"
    assert {view.code for view in shown} == {"internal"}
    assert "so far" in (shown[-1].got or "")
    assert "report it" in (shown[0].remedy or "")
    assert made.mishaps.defects == 10, "what was raised, and that recovering raised"


def test_what_the_application_master_tells_itself_must_not_fail() -> None:
    owner, made = boundary(None)
    error = KeyError("x")
    made.take(Tick(), raising(error))
    made.take(AskOutcome("prepare", 1, None, "timeout"), raising(error))
    assert owner.failures == [error, error]


def test_the_answer_of_another_process_is_refused_like_any_message_of_it() -> None:
    owner, made = boundary(None)
    made.take(AskOutcome("prepare", 1, Prepared(False, False, "")), raising(KeyError("x")))
    assert owner.failures == []
    assert "could not handle Prepared" in owner.noted[0].what


def test_a_hook_of_the_users_fails_the_application_unless_a_client_has_sent_the_message() -> None:
    error = KeyError("x")
    owner, made = boundary(Sender(EXECUTOR), are_hooks_ours=False)
    made.take(GetStatus(), lambda _: made.call_hook(raising(error)))
    assert owner.failures == [error]
    client = Sender("client")
    owner, made = boundary(client, are_hooks_ours=False)
    made.take(GetStatus(), lambda _: made.call_hook(raising(error)))
    assert owner.failures == []
    assert [type(message) for message in client.told] == [Failure]
