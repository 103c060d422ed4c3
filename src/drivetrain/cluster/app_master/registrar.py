"""The application master's connection to the leader: it registers with every leader, and reports.

Problem: leaders change, are out of reach, or do not answer; a report counts only once the registry of a
majority has it; and an application master that was replaced must end without reporting.

Design: `core.cluster.registration` decides when to register, `LeaderLink` with which leader. One report is
under way at a time; `report` gets its content from the owner and sends it unless another is under way.

Invariants:
1. Nothing is reported before this application master is registered with the leader.
2. `is_known_prepared` is true only when the registry records it.
3. An application master whose epoch is stale abandons the application.

Called by `app_master`.
"""

from __future__ import annotations

from typing import Final, Protocol

from drivetrain.actor import ActorRef, Context, Message
from drivetrain.cluster.app_master.app_master_messages import AskOutcome, Setup, Wake
from drivetrain.cluster.leader import LeaderLink
from drivetrain.cluster.messages.registration import (
    AppMasterRegistered,
    AppMasterReport,
    RegisterAppMaster,
    ReportAccepted,
)
from drivetrain.config.catalog import application as keys
from drivetrain.core.cluster import registration as registering

STALE_EPOCH: Final = "stale-epoch"
REPORT_MS: Final = 5_000
_ASK_MS: Final = 4_000
_TOOK_OVER: Final = "another application master took over"


class Reporter(Protocol):
    """The methods of its application master that the registrar needs."""

    @property
    def now_ms(self) -> int:
        """A clock that never goes back."""

    def ask(self, what: str, number: int, whom: ActorRef, message: Message, timeout_ms: int) -> None:
        """Ask without waiting; the outcome arrives as `AskOutcome`."""

    def leader_accepted(self, registered: AppMasterRegistered, *, is_first: bool) -> None:
        """A leader, perhaps a new one, has registered this application master."""

    def make_report(self) -> AppMasterReport:
        """Build the report to send now."""

    def report_taken(self, *, is_end: bool) -> None:
        """The registry has a report; `is_end` when the report contained the application's end."""

    def abandon(self, why: str) -> None:
        """Stop without a report: another application master has the application."""


class Registrar:
    """Registers and reports for `reporter`, whose actor's context is given; `start` it first."""

    def __init__(self, setup: Setup, context: Context, reporter: Reporter) -> None:
        self._setup: Final = setup
        self._context: Final = context
        self._reporter: Final = reporter
        self.registered: AppMasterRegistered | None = None
        """The first leader's answer."""
        self.is_known_prepared = False
        self._reports_prepared = False  # in the last report sent
        self._is_reporting = False
        self._reported_ms = reporter.now_ms
        self._core = registering.Registration(setup.config[keys.LEADER_TIMEOUT], reporter.now_ms)
        self.link = LeaderLink(context, setup.masters, self._leader_found, self._leader_lost)

    def start(self) -> None:
        """Look for the leader."""
        self.link.start()

    @property
    def leader(self) -> ActorRef | None:
        """The leader, whether it has answered or not."""
        return self.link.leader

    @property
    def is_registered(self) -> bool:
        """Whether the leader knows this application master."""
        return self._core.is_registered

    def handle(self, message: Message) -> bool:
        """Handle a message for the registrar; False for any other message."""
        if self.link.handle(message):
            return True
        match message:
            case Wake("registration"):
                self._step(registering.Tick())
            case AskOutcome("registration"):
                self._registration_answered(message)
            case AskOutcome("report"):
                self._report_answered(message)
            case _:
                return False
        return True

    def beat(self) -> None:
        """Time has passed: report if the last report is old enough."""
        if self.is_registered and self._reporter.now_ms - self._reported_ms >= REPORT_MS:
            self.report()

    def report(self) -> None:
        """Report now, unless a report is under way or no leader has registered this application master."""
        leader = self.leader
        if self._is_reporting or leader is None or not self.is_registered:
            return
        self._is_reporting = True
        self._reported_ms = self._reporter.now_ms
        report = self._reporter.make_report()
        self._reports_prepared = report.prepared
        self._reporter.ask("report", int(report.state.is_over), leader, report, _ASK_MS)

    # ---- inside

    def _leader_found(self, term: int, master: ActorRef) -> None:
        self._step(registering.LeaderFound((term, master)))

    def _leader_lost(self, why: str) -> None:
        self._setup.log(f"the leader is lost: {why}")
        self._step(registering.LeaderLost())

    def _step(self, event: registering.Event) -> None:
        if self._core.state is registering.RegistrationState.ENDED:
            return
        now_ms, timers = self._reporter.now_ms, self._context.timers
        for effect in self._core.step(event, now_ms):
            match effect:
                case registering.Register(attempt, _, timeout_ms) if self.leader is not None:
                    message = RegisterAppMaster(self._setup.app_id, self._setup.epoch, self._context.me)
                    self._reporter.ask("registration", attempt, self.leader, message, timeout_ms)
                case registering.End(unregistered_ms, why):
                    why_abandoned = f"no leader for {unregistered_ms // 1000} s ({why or 'none answered'})"
                    self._reporter.abandon(why_abandoned)
        wake_ms = self._core.wake_ms
        if wake_ms is None:
            timers.cancel("registration")
        else:
            delay_ms = max(0, wake_ms - now_ms) + 1
            timers.start_once("registration", Wake("registration"), delay_ms=delay_ms)

    def _registration_answered(self, message: AskOutcome) -> None:
        match message.answer:
            case AppMasterRegistered() as registered:
                self._step(registering.Accepted(message.number))
                is_first = self.registered is None
                self.registered = self.registered or registered
                self._reporter.leader_accepted(registered, is_first=is_first)
                self.report()
            case None if message.code == STALE_EPOCH:
                self._reporter.abandon(_TOOK_OVER)
            case None if message.code in ("timeout", "unreachable"):
                pass  # the attempt's deadline decides when to try again
            case _:
                self._step(registering.Refused(message.number, message.why))
                self.link.look_again()

    def _report_answered(self, message: AskOutcome) -> None:
        self._is_reporting = False
        if isinstance(message.answer, ReportAccepted):
            self.is_known_prepared |= self._reports_prepared
            self._reporter.report_taken(is_end=bool(message.number))
        elif message.code == STALE_EPOCH:
            self._reporter.abandon(_TOOK_OVER)
        elif message.answer is not None or message.code not in ("timeout", "unreachable", "no-quorum"):
            self.link.look_again()
