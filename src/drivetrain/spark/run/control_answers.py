"""Answers requests of other processes to the application that this process runs.

Design: a table of answers, one for each kind of request of `runtime.control_requests`. Requests arrive in
threads of the control socket, so that no request waits for a batch, and no batch for a request.

Called by `embedded`, which opens the socket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.errors import UserError
from drivetrain.runtime.control_requests import ControlAnswer, ControlRequest
from drivetrain.runtime.error_records import error_record
from drivetrain.spark.prepare.graph_code import graph_from_code
from drivetrain.spark.run.change_proposal import RequestedChange
from drivetrain.spark.run.configuring import configure
from drivetrain.spark.run.subscribers import Subscribers

if TYPE_CHECKING:
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.run.live_changes import LiveChanges
    from drivetrain.spark.run.run_reporter import RunReporter

_ID: Final = re.compile(r"[0-9a-f]{32}")


class ControlAnswers:
    """Answers requests of other processes to the application in `rundir`, which this process runs."""

    def __init__(self, rundir: RunDirectory, changes: LiveChanges, reporter: RunReporter) -> None:
        self._rundir: Final = rundir
        self._changes: Final = changes
        self._reporter: Final = reporter
        self._subscribers: Final = Subscribers(changes)
        self._answers: Final[Mapping[str, Callable[[ControlRequest], ControlAnswer]]] = {
            "change": self._change,
            "state": lambda _: ControlAnswer(changes.state),
            "give-up": self._give_up,
            "status": lambda _: ControlAnswer(changes.state, status=reporter.status()),
            "history": lambda _: ControlAnswer(history=reporter.history()),
            "graph": lambda _: ControlAnswer(graph=reporter.graph()),
            "threads": lambda _: ControlAnswer(threads=reporter.threads()),
            "stop": self._stop,
            "configure": self._configure,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "scale": self._scale,
        }

    def answer(self, line: bytes) -> bytes:
        """The answer to a request, both one line of JSON; never raises because of its content."""
        try:
            request = msgspec.json.decode(line, type=ControlRequest)
            answer = self._answers[request.ask](request)
        except msgspec.MsgspecError as error:
            wrong = UserError("the request cannot be read", expected="JSON of a request", got=str(error))
            answer = ControlAnswer(failure=error_record(wrong))
        except Exception as error:  # noqa: BLE001 - sent to the process that asked
            answer = ControlAnswer(failure=error_record(error))
        return msgspec.json.encode(answer)

    def _change(self, request: ControlRequest) -> ControlAnswer:
        if not _ID.fullmatch(request.proposal):
            raise UserError("a request names no proposal", expected="32 hexadecimal digits")
        record, code = self._rundir.versions.proposal(request.proposal)
        graph = graph_from_code(code, "a proposed version")
        asked = RequestedChange(record, graph, code, request.how, request.against, request.options)
        number = self._changes.propose(asked)
        self._changes.wait_taken(number)
        return ControlAnswer(self._changes.state, number)

    def _give_up(self, request: ControlRequest) -> ControlAnswer:
        self._changes.give_up(request.number)
        return ControlAnswer(self._changes.state, request.number)

    def _configure(self, request: ControlRequest) -> ControlAnswer:
        configured = configure(self._changes.versions, request.values, request.restored)
        return ControlAnswer(self._changes.state, configured=configured)

    def _subscribe(self, request: ControlRequest) -> ControlAnswer:
        if request.wanted is None:
            raise UserError("the request names no stream to subscribe to")
        return ControlAnswer(subscribed=self._subscribers.subscribe(request.wanted))

    def _unsubscribe(self, request: ControlRequest) -> ControlAnswer:
        number = self._subscribers.end(request.reader, request.source)
        return ControlAnswer(self._changes.state, number)

    def _scale(self, request: ControlRequest) -> ControlAnswer:
        if request.dry_run:
            planned = self._changes.planned_scaling(request.fragment, request.partitions)
            return ControlAnswer(self._changes.state, planned_scaling=planned)
        self._changes.scale(request.fragment, request.partitions)
        return ControlAnswer(self._changes.state)

    def _stop(self, _: ControlRequest) -> ControlAnswer:
        self._reporter.stop()
        return ControlAnswer(self._changes.state)
