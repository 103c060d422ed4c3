"""An application that another one reads, or wants to read: whether it runs, and what it answers to a request.

Problem: it may run embedded, and have a socket, or in a cluster, whose processes may be on other machines.
All that is sure is the state directory, which both applications reach.

Design: what listens at the socket of an application is asked there. Else, if executors of a cluster prepared
it last, the request is a file (`subscription_request_queue`), and the answer is the version in force: it has
the subscription, and the channel has begun.

What if we die here: the request stays, and the next start of the reader takes it up.

Called by `spark.run.subscribing` and `spark.run.stopped_producers`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from drivetrain.core.change.graph_version import SubscriptionRecord, subscription_id
from drivetrain.core.change.live_change import Stage
from drivetrain.core.change.subscription_request_queue import WantedSubscription
from drivetrain.errors import UserError
from drivetrain.file_lock import FileLock
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.control_requests import (
    Subscribed,
    SubscriptionRequest,
    ask_to_subscribe,
    ask_to_unsubscribe,
    asked_state,
)
from drivetrain.runtime.control_socket import NotRunningError, is_running_at
from drivetrain.runtime.preparation import Preparation
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.subscription_check import columns_file
from drivetrain.runtime.subscription_requests import SubscriptionRequests


def runs(home: Path) -> bool:
    """Whether processes run the application of the state directory `home`, embedded or in a cluster."""
    return is_running_at(home) or (_is_of_cluster(home) and _has_executors(home))


def _has_executors(home: Path) -> bool:
    lock = FileLock(home / "lock")  # which executors share while they live
    try:
        return not lock.take()
    finally:
        lock.release()


def subscribed(producer: RunDirectory, wanted: SubscriptionRequest, *, in_cluster: bool) -> Subscribed | str:
    """The subscription of a reader that starts over, or why the application has not begun it yet.

    To be called again and again. `in_cluster` is where the reader runs. Raises the refusal, UserError when
    the application has finished, or has a socket that a reader in a cluster cannot use.
    """
    if producer.finished is not None:
        raise UserError(
            f"application {producer.app_id} has finished: nothing will come from its streams",
            remedy="subscribe while it runs; it keeps what is not read when it finishes",
        )
    is_embedded = is_running_at(producer.path)
    if not is_embedded and _is_of_cluster(producer.path):
        return _subscribed_by_file(producer, wanted)
    if not in_cluster:
        return _subscribed_by_socket(producer, wanted)
    if is_embedded:
        raise UserError(
            "an application in a cluster cannot read one that runs outside of it",
            where=wanted.source,
            expected=f"{producer.app_id} in the cluster",
            got="it is run by drivetrain run",
            remedy="stop it, and submit it; or put a Kafka topic or files between them",
        )
    return "it does not run"


def _subscribed_by_socket(producer: RunDirectory, wanted: SubscriptionRequest) -> Subscribed | str:
    try:
        state = asked_state(producer)
        if state.stage is not Stage.IDLE:
            return f"it is changing to version {state.number}"
        return ask_to_subscribe(producer, wanted)
    except NotRunningError as error:
        return str(error)


def noted(producer: RunDirectory, reader: str, source: str) -> None:
    """The reader has noted its subscription, or does not want one any more: no request is left."""
    SubscriptionRequests(producer.path, producer.writers).withdraw(subscription_id(reader, source))


def end(producer: RunDirectory, of: SubscriptionRecord) -> None:
    """Have the application end a subscription; raises UnavailableError when it can never be asked."""
    if not is_running_at(producer.path) and _is_of_cluster(producer.path):
        SubscriptionRequests(producer.path, producer.writers).ask_to_end(of)
    else:
        ask_to_unsubscribe(producer, of.reader, of.source)


def _is_of_cluster(home: Path) -> bool:
    """Whether executors of a cluster prepared the application last."""
    by = Preparation(home).last
    return by is not None and bool(by.app_id)


def _subscribed_by_file(producer: RunDirectory, wanted: SubscriptionRequest) -> Subscribed | str:
    requests = SubscriptionRequests(producer.path, producer.writers)
    id = subscription_id(wanted.reader, wanted.source)
    asked = requests.ask(
        SubscriptionRecord(id, wanted.stream, wanted.reader, wanted.source, "", wanted.drop_after_ms)
    )
    refusal = requests.refusal(asked)
    if refusal is not None:
        requests.withdraw(id)
        raise refusal
    begun = _begun(producer, asked)
    if begun is not None:
        return begun
    return "it has been asked" if _has_executors(producer.path) else "it does not run"


def _begun(producer: RunDirectory, asked: WantedSubscription) -> Subscribed | None:
    """The subscription that was asked for, once the fragment that writes its channel has begun to."""
    in_force = producer.versions.last_readable()
    if in_force is None or all((r.id, r.key) != asked.name for r in in_force.subscriptions):
        return None
    place = producer.channel(asked.of.channel)
    begins, columns = ChannelBeginning(place).read(), columns_file(place).read()
    if columns is None or (begins is not None and begins.after is None):
        return None
    return Subscribed(asked.of.id, asked.of.key, place, msgspec.json.decode(columns))
