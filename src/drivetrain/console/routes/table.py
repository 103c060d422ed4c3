"""The table of all routes: those that read are here, those that write in `writes`.

Called by `console.endpoints` and `console.server`.
"""

from __future__ import annotations

from typing import Final

from drivetrain.console.access.roles import Role
from drivetrain.console.answers.applications import ApplicationPage, ApplicationSnapshot
from drivetrain.console.answers.cluster import Cluster, Configuration, Masters, Workers
from drivetrain.console.answers.dead_letters import DeadLetters
from drivetrain.console.answers.diagnosis import Diagnosis
from drivetrain.console.answers.figures import History
from drivetrain.console.answers.late_messages import LateMessages
from drivetrain.console.answers.operations import Logs, Threads
from drivetrain.console.answers.progress import Channels, CheckpointReport, Clocks, Errors, Fragments
from drivetrain.console.answers.session import SessionState, SignIn
from drivetrain.console.answers.states import StateEntries, StatefulProcessors
from drivetrain.console.answers.versions import VersionDifference, VersionGraph, Versions
from drivetrain.console.event_stream import MEDIA_TYPE
from drivetrain.console.handlers import (
    applications,
    cluster,
    dead_letters,
    events,
    graphs,
    late_messages,
    logs,
    metrics,
    session,
    states,
    versions,
)
from drivetrain.console.handlers.message_pages import MessagesQuery
from drivetrain.console.route import V1, Route
from drivetrain.console.routes.writes import APP as _APP
from drivetrain.console.routes.writes import WRITES
from drivetrain.core.picture.placed_graph import Graph

_GUEST: Final = Role.GUEST
_USER: Final = Role.USER

ROUTES: Final[tuple[Route, ...]] = (
    # ---- the console itself
    Route("GET", "/healthz", "getHealth", "The console answers.", Role.NOBODY, cluster.healthz, "text/plain"),
    Route(
        "GET",
        "/readyz",
        "getReadiness",
        "The console reaches a leading master.",
        Role.NOBODY,
        cluster.readyz,
        "text/plain",
        problems=(503,),
    ),
    Route(
        "GET",
        "/metrics",
        "getMetrics",
        "Metrics of the cluster and of all applications that run, as OpenMetrics.",
        _GUEST,
        metrics.metrics,
        "application/openmetrics-text",
    ),
    Route(
        "GET",
        f"{V1}/configuration",
        "getConfiguration",
        "The configuration of the console, without secrets, and where each value was set.",
        Role.ADMIN,
        cluster.configuration,
        Configuration,
    ),
    Route(
        "GET",
        f"{V1}/events",
        "getEvents",
        "What changes, as server-sent events.",
        _GUEST,
        events.events,
        MEDIA_TYPE,
        query=events.EventsQuery,
        problems=(404, 429),
        headers={"Last-Event-ID": "The id of the last event of an earlier stream, which this one continues."},
    ),
    Route(
        "GET",
        f"{V1}/openapi.json",
        "getDocument",
        "This document.",
        Role.NOBODY,
        session.openapi,
        "application/json",
    ),
    Route(
        "GET", f"{V1}/session", "getSession", "Who is signed in.", Role.NOBODY, session.state, SessionState
    ),
    Route(
        "POST",
        f"{V1}/session",
        "signIn",
        "Sign in with a name and a password; sets a cookie.",
        Role.NOBODY,
        session.sign_in,
        SessionState,
        body=SignIn,
        statuses=(201,),
        problems=(401, 429),
    ),
    Route("DELETE", f"{V1}/session", "signOut", "Sign out.", Role.NOBODY, session.sign_out, SessionState),
    # ---- the cluster
    Route("GET", f"{V1}/cluster", "getCluster", "The cluster in short.", _GUEST, cluster.cluster, Cluster),
    Route("GET", f"{V1}/masters", "getMasters", "All masters.", _GUEST, cluster.masters, Masters),
    Route("GET", f"{V1}/workers", "getWorkers", "All workers.", _GUEST, cluster.workers, Workers),
    # ---- applications
    Route(
        "GET",
        f"{V1}/applications",
        "listApplications",
        "Applications, the newest first, page by page.",
        _GUEST,
        applications.listed,
        ApplicationPage,
        query=applications.ListQuery,
    ),
    Route(
        "GET",
        _APP,
        "getApplication",
        "All of one application, by its id or name.",
        _GUEST,
        applications.detail,
        ApplicationSnapshot,
    ),
    Route(
        "GET",
        f"{_APP}/diagnosis",
        "getDiagnosis",
        "What is wrong with an application, why, and what to do.",
        _GUEST,
        applications.diagnosis,
        Diagnosis,
    ),
    Route(
        "GET",
        f"{_APP}/graph",
        "getGraph",
        "The graph of an application, with coordinates.",
        _GUEST,
        graphs.graph,
        Graph,
        problems=(429,),
    ),
    Route(
        "GET",
        f"{_APP}/history",
        "getHistory",
        "The figures of an application in a span of time, in columns.",
        _GUEST,
        applications.history,
        History,
        query=applications.HistoryQuery,
    ),
    Route(
        "GET",
        f"{_APP}/fragments",
        "getFragments",
        "The fragments of an application.",
        _GUEST,
        applications.fragments,
        Fragments,
    ),
    Route(
        "GET",
        f"{_APP}/channels",
        "getChannels",
        "The channels of an application.",
        _GUEST,
        applications.channels,
        Channels,
    ),
    Route(
        "GET",
        f"{_APP}/clocks",
        "getClocks",
        "The clocks of an application; waits for a moment if asked to.",
        _GUEST,
        applications.clocks,
        Clocks,
        query=applications.ClocksQuery,
        problems=(409, 504),
    ),
    Route(
        "GET",
        f"{_APP}/checkpoints",
        "getCheckpoints",
        "The checkpoints of an application.",
        _GUEST,
        applications.checkpoints,
        CheckpointReport,
    ),
    Route(
        "GET",
        f"{_APP}/errors",
        "getErrors",
        "The latest errors of an application, those it recovered from included.",
        _USER,
        applications.errors,
        Errors,
    ),
    Route(
        "GET",
        f"{_APP}/dead-letters",
        "getDeadLetters",
        "The messages that an application could not process, the newest first, page by page.",
        _USER,
        dead_letters.dead_letters,
        DeadLetters,
        query=MessagesQuery,
        problems=(429,),
    ),
    Route(
        "GET",
        f"{_APP}/late-messages",
        "getLateMessages",
        "Samples of the messages that came too late for an application, the newest first, page by page.",
        _USER,
        late_messages.late_messages,
        LateMessages,
        query=MessagesQuery,
        problems=(429,),
    ),
    Route(
        "GET",
        f"{_APP}/states",
        "listStates",
        "The processors of an application whose states can be asked for.",
        _USER,
        states.processors,
        StatefulProcessors,
        problems=(429,),
    ),
    Route(
        "GET",
        f"{_APP}/states/{{processor}}",
        "getStates",
        "The states of a processor by key, now or as of an application time.",
        _USER,
        states.states,
        StateEntries,
        query=states.StatesQuery,
        problems=(429,),
    ),
    Route(
        "GET",
        f"{_APP}/versions",
        "listVersions",
        "The versions of an application's graph, the newest first, and what became of each.",
        _USER,
        versions.versions,
        Versions,
        problems=(429,),
    ),
    Route(
        "GET",
        f"{_APP}/versions/{{number}}",
        "getVersion",
        "The graph of one version.",
        _USER,
        versions.graph,
        VersionGraph,
        problems=(404, 429),
    ),
    Route(
        "GET",
        f"{_APP}/versions/{{number}}/difference",
        "getVersionDifference",
        "What differs in one version against another: each processor, and both graphs in one picture.",
        _USER,
        versions.difference,
        VersionDifference,
        query=versions.DifferenceQuery,
        problems=(404, 429),
    ),
    Route(
        "GET",
        f"{_APP}/logs",
        "getLogs",
        "The ends of the logs of an application's processes, or what follows an offset in one of them.",
        _USER,
        logs.logs,
        Logs,
        query=logs.LogsQuery,
    ),
    Route(
        "GET",
        f"{_APP}/logs/events",
        "followLogs",
        "The logs as they are written, as server-sent events.",
        _USER,
        logs.follow,
        MEDIA_TYPE,
        query=logs.FollowQuery,
        problems=(404, 429),
    ),
    Route(
        "GET",
        f"{_APP}/threads",
        "getThreads",
        "The stacks of the threads of an executor, or of a run of this machine.",
        _USER,
        logs.threads,
        Threads,
        query=logs.ThreadsQuery,
        problems=(404, 409),
    ),
    *WRITES,
)
