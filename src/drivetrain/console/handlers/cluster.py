"""Requests about the cluster, and about the console itself.

Called by `console.routes.table`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from starlette.responses import PlainTextResponse, Response

from drivetrain.cluster.client import NoLeaderError
from drivetrain.console.answers.cluster import (
    Cluster,
    Configuration,
    ConfigurationValue,
    Masters,
    Shows,
    Workers,
)
from drivetrain.console.route import Call
from drivetrain.console.watching.status_answers import cluster_of, master_of, worker_of
from drivetrain.errors import UnavailableError

NO_CLUSTER: Final = "look at the applications: their processes have neither masters nor workers"


async def cluster(call: Call) -> Cluster:
    """The cluster in short; works without a leader, if any master answers."""
    client = call.services.client
    masters = await client.masters()
    try:
        workers, lines = await asyncio.gather(client.workers(), client.applications())
    except NoLeaderError:
        workers, lines = (), ()
    shows: Shows = "cluster" if call.services.runs is None else "runs"
    return cluster_of(masters, workers, lines, time.time_ns() // 1_000_000, shows)


async def masters(call: Call) -> Masters:
    """All masters."""
    call.services.require_cluster("show masters", NO_CLUSTER)
    return Masters(masters=tuple(map(master_of, await call.services.client.masters())))


async def workers(call: Call) -> Workers:
    """All workers."""
    call.services.require_cluster("show workers", NO_CLUSTER)
    found = tuple(map(worker_of, await call.services.client.workers()))
    return Workers(workers=found, local=await _local_names(call))


async def _local_names(call: Call) -> tuple[str, ...] | None:
    """The workers that the `drivetrain local` of this console runs; None without one that answers."""
    local = call.services.local_workers
    try:
        return None if local is None else await local.names()
    except UnavailableError:
        return None


async def configuration(call: Call) -> Configuration:
    """The configuration of this console, with secrets masked."""
    return Configuration(
        values=tuple(
            ConfigurationValue(
                key=setting.key.name,
                value=setting.shown,
                default=setting.key.parse.show(setting.key.default_value),
                origin=setting.place,
                description=setting.key.doc,
            )
            for setting in call.services.config
        )
    )


async def healthz(call: Call) -> Response:
    """The console answers."""
    return PlainTextResponse("ok\n")


async def readyz(call: Call) -> Response:
    """The console reaches a leading master; 503 otherwise."""
    await call.services.client.workers()
    return PlainTextResponse("ready\n")
