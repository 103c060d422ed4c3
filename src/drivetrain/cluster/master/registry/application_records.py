"""Applications in the registry of the masters: keys, and records as bytes.

Called by `application_manager`, `app_masters` and `code_store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.registration import AppMasterReport
from drivetrain.core.cluster.application_record import ApplicationRecord

RECORD_PREFIX: Final = "app/"
NUMBER: Final = "last-number"

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(ApplicationRecord)
_spec_decoder: Final = msgspec.msgpack.Decoder(ApplicationSpec)


def key_of(record: ApplicationRecord) -> str:
    """The key of a record in the registry."""
    return RECORD_PREFIX + record.app_id


def encode(record: ApplicationRecord) -> bytes:
    """Encode a record for the registry."""
    return _encoder.encode(record)


def records_of(values: Mapping[str, bytes]) -> list[ApplicationRecord]:
    """The records in a registry, in the order of their keys."""
    return [_decoder.decode(value) for key, value in sorted(values.items()) if key.startswith(RECORD_PREFIX)]


def codes_of(values: Mapping[str, bytes]) -> set[str]:
    """The archives that the applications of a registry need."""
    return {record.code for record in records_of(values)}


def encode_spec(spec: ApplicationSpec) -> bytes:
    """Encode a specification for an application's record."""
    return _encoder.encode(spec)


def spec_of(record: ApplicationRecord) -> ApplicationSpec:
    """The specification that an application is started with."""
    return _spec_decoder.decode(record.spec)


def spec_after(record: ApplicationRecord, report: AppMasterReport) -> bytes | None:
    """The spec without its request for a new state, if `report` shows that it took effect; else None."""
    spec = spec_of(record)
    if not (report.prepared and spec.begins_anew):
        return None
    return encode_spec(msgspec.structs.replace(spec, fresh=False, replay_from_ms=None, savepoint=None))


def replay_begun(record: ApplicationRecord, report: AppMasterReport) -> int | None:
    """The timestamp from which a replay processes that has begun by `report`; None without one."""
    return spec_of(record).replay_from_ms if report.prepared else None


def spec_replayed(record: ApplicationRecord, replay_from_ms: int | None) -> bytes:
    """The spec for a restart: in a new life from that timestamp on, or (None) in the same one."""
    return encode_spec(msgspec.structs.replace(spec_of(record), replay_from_ms=replay_from_ms))
