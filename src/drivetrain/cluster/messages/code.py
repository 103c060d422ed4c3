"""Moving an application's files: client to leader, master to master, master to worker.

An archive is identified by the SHA-256 of its bytes, in hexadecimal. It is moved in chunks well below the
frame limit, so that control messages do not wait for it.
"""

from __future__ import annotations

from drivetrain.actor import Message
from drivetrain.cluster.messages.numbers import Count

CHUNK_BYTES = 256 * 1024


class PutCode(Message, frozen=True, tag="cluster.put-code"):
    """A chunk of an archive, at byte `offset` of `size_bytes`; answered with `CodeStored` or a `Failure`."""

    sha256: str
    offset: Count
    size_bytes: Count
    data: bytes


class CodeStored(Message, frozen=True, tag="cluster.code-stored"):
    """The stored length of the archive: send from there. `complete` means verified and durable.

    A `PutCode` without data asks for this length.
    """

    sha256: str
    stored_bytes: Count
    complete: bool


class GetCode(Message, frozen=True, tag="cluster.get-code"):
    """Asks a master for a chunk; answered with `CodeChunk`, or `Failure("no-code", …)`."""

    sha256: str
    offset: Count


class CodeChunk(Message, frozen=True, tag="cluster.code-chunk"):
    """A chunk of an archive of `size_bytes`."""

    sha256: str
    offset: Count
    size_bytes: Count
    data: bytes
