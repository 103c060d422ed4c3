"""The options of a change of a running application, as its user gives them.

Problem: a change passes through a command or a client, perhaps a console, masters and several executors. Each
of them needs the options, and none may lose one.

Called by everything that asks for a change, compares versions, or compiles one.
"""

from __future__ import annotations

from typing import Final

import msgspec

from drivetrain.core.change.handover import ChangeTime


class ChangeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of one change.

    With `discards`, removed fragments do not process the rest of their input. With `even_if_read`, it may
    change what other applications read. `drops` are processors whose state may be dropped, where it would not
    fit otherwise. `at` is when it takes effect. With `history_ms`, its new fragments also get the messages
    from that time on that were before.
    """

    discards: bool = False
    even_if_read: bool = False
    drops: tuple[str, ...] = ()
    at: ChangeTime = None
    history_ms: int | None = None


NO_OPTIONS: Final = ChangeOptions()
