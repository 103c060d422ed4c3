"""The note that an application keeps between runs about a stream of another application that it reads.

    <state directory>/sources/<source>/subscription    a `SubscriptionNote` as JSON, with a checksum

What if we die here: the other application has the subscription before it is noted; asking again gives the
same one. Without a note, an application that has taken messages cannot continue.

Invariants:

1. A query that reads a channel of another application finds the note that it began with.

Called by `spark.run.subscribing` and `spark.prepare.outside_stream`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from drivetrain.private_files import Writers
from drivetrain.runtime.durable_file import DurableFile

_FILE: Final = "subscription"


class SubscriptionNote(msgspec.Struct, frozen=True):
    """A subscription to the stream `stream` of the application `app_id`, whose state directory is `home`.

    `id` is the processor of the subscription there, `key` distinguishes it from earlier ones of the same
    reader; `channel` is the place of its channel, and `schema` is Spark's schema of the messages, as JSON.
    `writers` may write in its state directory.
    """

    app_id: str
    home: str
    stream: str
    id: str
    key: str
    channel: str
    schema: Any
    writers: Writers = Writers.OWNER


def read_note(directory: Path) -> SubscriptionNote | None:
    """The note in a source's directory; None if it has none. Raises InputError when damaged."""
    return _file(directory).read_json(SubscriptionNote)


def write_note(directory: Path, note: SubscriptionNote) -> None:
    """Keep the note in a source's directory, which is created if necessary."""
    directory.mkdir(parents=True, exist_ok=True)
    _file(directory).write(msgspec.json.encode(note))


def forget_note(directory: Path) -> None:
    """Delete the note of a subscription that has ended."""
    (directory / _FILE).unlink(missing_ok=True)


def _file(directory: Path) -> DurableFile:
    return DurableFile(
        directory / _FILE,
        "the note of a subscription",
        if_damaged="start the application over with --fresh",
        if_full="make room, and run the same command again: it continues where it stopped",
    )
