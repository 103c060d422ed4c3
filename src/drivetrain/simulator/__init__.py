"""The deterministic simulator of actors and their protocols, shipped to users."""

from drivetrain.simulator.faults import DiskFaults, NetworkFaults
from drivetrain.simulator.loop import SimulatedLoop
from drivetrain.simulator.network import SimulatedNetwork
from drivetrain.simulator.node import Node
from drivetrain.simulator.simulate import simulate
from drivetrain.simulator.simulated_disk import SimulatedDisk
from drivetrain.simulator.simulated_transport import SimulatedTransport
from drivetrain.simulator.simulation import Simulation
from drivetrain.simulator.simulation_errors import (
    BackgroundFailureError,
    DeadlockError,
    LivelockError,
    OverrunError,
    ProcessEndedError,
    RealWorldError,
    SimulationError,
)
from drivetrain.simulator.trace import Trace

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
