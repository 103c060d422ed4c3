"""Checks a place in an object store or in HDFS: can it be reached, is access permitted, does it keep its
guarantees.

It writes a few small objects under a name of its own below the place, and deletes them. In HDFS a directory
that it had to create for them stays.

Called by `drivetrain doctor`.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Final

from drivetrain.cli.checks.finding import Finding, Verdict
from drivetrain.config import Config
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.objects.locations import SCHEMES, is_in_hdfs, is_in_object_store, open_place
from drivetrain.runtime.objects.object_store import ObjectStore
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.runtime.objects.store_services import service_of

_MOST_SKEW_MS: Final = 60_000
_RIGHTS: Final = "allow these credentials to list the bucket, and to read, write and delete below the place"
_HDFS_RIGHTS: Final = (
    "allow this user (HADOOP_USER_NAME, or that of the Kerberos ticket) to list, read, write and delete "
    "below the place"
)


def check_place(place: str, config: Config) -> Finding:
    """What is wrong with a place, or that it can be used; tries each request once."""
    if not is_in_object_store(place):
        remedy = f"name a place that begins with {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}"
        return Finding(place, Verdict.FAIL, "not a place in an object store", remedy)
    try:
        store, name = open_place(place, StoreSettings.of(config), retry_ms=0)
        return _examined(place, store, f"{name}/.drivetrain-doctor-{uuid.uuid4().hex}".lstrip("/"))
    except PermissionError as error:
        return Finding(place, Verdict.FAIL, str(error), _rights(place))
    except UnavailableError as error:
        is_hdfs = is_in_hdfs(place)
        advice = error.remedy if is_hdfs else f"check {service_of(place).place_keys}, and the network"
        return Finding(place, Verdict.FAIL, f"{error.what}: {error.got}", advice)
    except DrivetrainError as error:
        found = f"{error.what}: {error.got}" if error.got else error.what
        return Finding(place, Verdict.FAIL, found, error.remedy)


def _rights(place: str) -> str:
    return _HDFS_RIGHTS if is_in_hdfs(place) else _RIGHTS


def _examined(place: str, store: ObjectStore, probe: str) -> Finding:
    next(store.pages(probe), None)
    began_ms = time.time_ns() // 1_000_000
    try:
        created, again = store.put_if_absent(probe, b"first"), store.put_if_absent(probe, b"second")
        took_ms = (time.time_ns() // 1_000_000 - began_ms) / 2
        if not created or again or store.get(probe) != b"first":
            return Finding(
                place,
                Verdict.FAIL,
                "it creates an object although there is one of that name",
                "use a store with conditional writes (If-None-Match), or a newer version of this one: here "
                "results could be replaced",
            )
        written = store.find(probe)
        if written is None or sum(len(page) for page in store.pages(probe.rpartition("/")[0])) == 0:
            return Finding(
                place, Verdict.FAIL, "it does not list what was written", "use a store that is consistent"
            )
        skew_ms = written.modified_ms - began_ms
    finally:
        with contextlib.suppress(UnavailableError, PermissionError):
            store.delete(probe)
    if store.find(probe) is not None:
        return Finding(place, Verdict.FAIL, "objects cannot be deleted", _rights(place))
    found = f"readable and writable, {took_ms:.0f} ms a request"
    if abs(skew_ms) > _MOST_SKEW_MS:
        return Finding(
            place,
            Verdict.WARN,
            f"{found}; its clock is {abs(skew_ms) / 1000:.0f} s {'ahead' if skew_ms > 0 else 'behind'}",
            "set the clocks of both by NTP: stores refuse requests of other times, 15 min at Amazon's",
        )
    return Finding(place, Verdict.OK, f"{found}; a second object of one name is refused")
