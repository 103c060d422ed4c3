"""The deterministic simulator and other tools for testing, shipped to users."""

from drivetrain.testing.disk import SimulatedDisk
from drivetrain.testing.faults import DiskFaults, NetworkFaults
from drivetrain.testing.loop import SimulatedLoop
from drivetrain.testing.network import SimulatedNetwork
from drivetrain.testing.node import Node
from drivetrain.testing.simulate import simulate
from drivetrain.testing.simulation import Simulation
from drivetrain.testing.simulation_errors import (
    BackgroundFailureError,
    DeadlockError,
    LivelockError,
    OverrunError,
    ProcessEndedError,
    RealWorldError,
    SimulationError,
)
from drivetrain.testing.trace import Trace
from drivetrain.testing.transport import SimulatedTransport

__all__ = [
    "BackgroundFailureError",
    "DeadlockError",
    "DiskFaults",
    "LivelockError",
    "NetworkFaults",
    "Node",
    "OverrunError",
    "ProcessEndedError",
    "RealWorldError",
    "SimulatedDisk",
    "SimulatedLoop",
    "SimulatedNetwork",
    "SimulatedTransport",
    "Simulation",
    "SimulationError",
    "Trace",
    "simulate",
]
