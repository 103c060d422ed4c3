"""The plan of a graph with a configuration.

Problem: versions of an application are compared by their plans, which the process that runs it and several
commands make. If one of them ignored a key, equal versions would appear to differ.

Called wherever an application is planned with a configuration.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from drivetrain.config.catalog import run as keys
from drivetrain.config.catalog import spark as spark_keys
from drivetrain.core.plan.planner import plan

if TYPE_CHECKING:
    from drivetrain.api.graphs.graph import Graph
    from drivetrain.config import Config
    from drivetrain.core.plan.plan import Plan


def configured_plan(graph: Graph, config: Config) -> Plan:
    """The plan with the latency and the delivery of `config`, and the partitions of new states.

    Raises GraphError for an invalid graph.
    """
    made = plan(graph, config[keys.LATENCY], config[keys.DELIVERY])
    return dataclasses.replace(made, state_partitions=config[spark_keys.SHUFFLE_PARTITIONS])
