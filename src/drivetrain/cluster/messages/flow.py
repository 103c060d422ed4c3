"""Executors of an application: flow control of channels between them, relayed by the application master."""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.cluster.messages.numbers import Count
from drivetrain.core.flow.flow import FlowMessage


class RelayedFlowMessage(Message, frozen=True, tag="cluster.relayed-flow-message"):
    """A message for a fragment elsewhere; sent to the application master, which forwards it to its executor.

    It may be lost, when the fragment has no executor or does not run there yet. The sender repeats it.
    """

    epoch: Count
    flow_message: FlowMessage
