"""The last status of an application fits the registry, whatever is in it."""

from __future__ import annotations

import msgspec
import pytest

from drivetrain.cluster.app_master.last_status import encode_within
from drivetrain.cluster.messages.following import ErrorView, FragmentView, JobState, JobStatus
from drivetrain.runtime.error_views import error_view

LIMIT = 100_000


def status(**changes: object) -> JobStatus:
    plain = JobStatus("wc-1", 3, JobState.FAILED, 1, 2, clock_ms=7, error=ErrorView("c", "what"))
    return msgspec.structs.replace(plain, **changes)


LONG = ErrorView("c", "w" * 8_000, user_traceback="t" * 8_000)


@pytest.mark.parametrize(
    "large",
    [
        status(printed="p" * 1_000_000),
        status(errors=(LONG,) * 100),
        status(fragments=tuple(FragmentView(f"f{n}", "failed", 1, error=LONG) for n in range(50))),
        status(fragments=tuple(FragmentView("f" * 100, "failed", n) for n in range(10_000))),
        status(accumulators={f"name {n}": n for n in range(100_000)}, error=ErrorView("c", "w" * 10**6)),
    ],
)
def test_a_status_of_any_size_is_kept_with_state_times_and_error(large: JobStatus) -> None:
    data = encode_within(large, LIMIT)
    assert len(data) <= LIMIT
    kept = msgspec.msgpack.decode(data, type=JobStatus)
    assert (kept.app_id, kept.epoch, kept.state, kept.clock_ms) == ("wc-1", 3, JobState.FAILED, 7)
    assert kept.error is not None
    assert kept.error.what.startswith("w")


def test_a_status_that_fits_is_kept_as_it_is() -> None:
    small = status(printed="p" * 50_000, errors=(LONG,))
    assert msgspec.msgpack.decode(encode_within(small, LIMIT), type=JobStatus) == small


def test_an_error_of_the_application_with_an_endless_text_is_cut() -> None:
    view = error_view(ValueError("x" * 10**7))
    assert len(view.what) < 10_000
    assert len(view.user_traceback or "") < 10_000
