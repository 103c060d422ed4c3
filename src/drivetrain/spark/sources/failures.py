"""Finding Drivetrain's own error again in what Spark reports.

The problem: an `InputError` raised in a Python worker reaches the driver as text, inside a Python
traceback, inside a JVM stack, inside a query's exception. The user should see the error and nothing else.

Called by whoever reports a query's failure.
"""

from __future__ import annotations

import re

from drivetrain import errors
from drivetrain.errors import DrivetrainError

_RAISED = re.compile(r"drivetrain\.errors\.(\w+): (.+)")
_FIELD = re.compile(r"  (expected|got|remedy): (.*)")


def rebuild_error(report: str) -> DrivetrainError | None:
    """The last `DrivetrainError` that `report` tells of, or None.

    `report` is the text of an exception that Spark raised. The rebuilt error reads the same; its place
    and its message are one sentence, in `what`.
    """
    lines = report.splitlines()
    for index in range(len(lines) - 1, -1, -1):
        raised = _RAISED.search(lines[index])
        if raised is None:
            continue
        kind = getattr(errors, raised[1], None)
        if not (isinstance(kind, type) and issubclass(kind, DrivetrainError)):
            continue
        fields: dict[str, str] = {}
        for line in lines[index + 1 : index + 4]:
            field = _FIELD.fullmatch(line)
            if field is None:
                break
            fields[field[1]] = field[2]
        if issubclass(kind, errors.OperatorError | errors.InternalError):
            return None
        return kind(raised[2], **fields)
    return None
