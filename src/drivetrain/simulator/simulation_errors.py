"""The errors of a simulation itself, as opposed to the failures that it finds.

Each of these ends the simulation; the message describes the cause (`Simulation.run` adds seed and
trace), so that the same run can be repeated.
"""

from __future__ import annotations

from drivetrain.errors import UserError


class SimulationError(UserError):
    """The root of the simulator's own errors: the program under test cannot be simulated like this."""

    code = "simulation"


class DeadlockError(SimulationError):
    """Nothing is left to run and no timer is pending, but the scenario still waits.

    Unlike `OverrunError`, time cannot move on: whatever is awaited will never happen.
    """

    code = "simulation-deadlock"


class LivelockError(SimulationError):
    """Very many callbacks ran while virtual time stood still: something reschedules itself for ever."""

    code = "simulation-livelock"


class OverrunError(SimulationError):
    """The scenario did not finish within its limit of virtual time, although things kept happening."""

    code = "simulation-overrun"


class RealWorldError(SimulationError):
    """The program used something that cannot be simulated: a socket, a signal, another thread."""

    code = "simulation-real-world"


class BackgroundFailureError(SimulationError):
    """A task or callback failed and was not awaited, so that the failure would have been lost."""

    code = "simulation-background-failure"


class ProcessEndedError(SimulationError):
    """The simulated process ended before it could give the result that the scenario awaits."""

    code = "simulation-process-ended"
