"""Which column of a stream is its event time, as far as the graph shows it.

Called by `api.operators.statements`.
"""

from __future__ import annotations

from collections.abc import Mapping

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Deduplicate, Filter, Sample


def declares_time(nodes: Mapping[str, Node], id: str, column: str) -> bool:
    """Whether the messages after a processor have their time in a column, unchanged since it was declared.

    The search goes back only through operators that leave columns unchanged: after any other, the answer is
    no.
    """
    node = nodes[id]
    while isinstance(node.operation, Filter | Sample | Deduplicate):
        node = nodes[node.inputs[0]]
    time = node.operation.assigned_time
    return time is not None and str(time.column).lower() == column.strip("`").lower()
