"""`drivetrain doctor s3://…`: what it says of a good store, and of one that breaks its promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drivetrain.cli.checks.finding import Verdict
from drivetrain.cli.checks.object_store_checks import check_place
from drivetrain.config import Config
from drivetrain.runtime.objects.obstore_store import ObstoreStore
from object_store import S3Server


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_place_that_can_be_used_is_left_as_it_was(s3: S3Server) -> None:
    folder = s3.bucket("doctor-good")
    found = check_place("s3://doctor-good/shop", Config.load(None, {}, s3.sets()))
    assert (found.verdict, found.remedy) == (Verdict.OK, None)
    assert "a second object of one name is refused" in found.found
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_store_that_creates_a_name_twice_is_refused(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.bucket("doctor-bad")

    def overwrite(self: ObstoreStore, path: str, content: bytes) -> bool:
        self.put(path, content)
        return True

    monkeypatch.setattr(ObstoreStore, "put_if_absent", overwrite)
    found = check_place("s3://doctor-bad", Config.load(None, {}, s3.sets()))
    assert found.verdict is Verdict.FAIL
    assert "although there is one" in found.found


@pytest.mark.parametrize(
    ("place", "sets", "says", "remedy"),
    [
        ("out/", {}, "not a place", "s3://"),
        ("s3://doctor-nowhere/x", {}, "no such bucket", "create it"),
        ("s3://doctor-good/x", {"s3.endpoint": "http://127.0.0.1:1"}, "does not answer", "s3.endpoint"),
        ("s3://doctor-good/x", {"s3.secret-key": "${TESTS_S3_ACCESS}"}, "not allowed", "credentials"),
        ("s3://doctor-good/x", {"s3.secret-key": "${TESTS_S3_ABSENT}"}, "TESTS_S3_ABSENT", ""),
        ("s3:///x", {}, "not a place in an object store", "correct"),
    ],
    ids=["local", "bucket", "endpoint", "rights", "secret", "uri"],
)
def test_what_is_wrong_comes_with_what_to_do(
    s3: S3Server, place: str, sets: dict[str, str], says: str, remedy: str
) -> None:
    s3.bucket("doctor-good")
    found = check_place(place, Config.load(None, {}, s3.sets() | sets))
    assert found.verdict is Verdict.FAIL
    assert says in found.found + str(found.remedy)
    assert remedy in str(found.remedy)


def test_a_clock_that_is_far_off_is_a_warning(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.bucket("doctor-late")
    find = ObstoreStore.find

    def late(self: ObstoreStore, path: str) -> Any:
        found = find(self, path)
        return found and replace(found, modified_ms=found.modified_ms - 20 * 60_000)

    monkeypatch.setattr(ObstoreStore, "find", late)
    found = check_place("s3://doctor-late", Config.load(None, {}, s3.sets()))
    assert found.verdict is Verdict.WARN
    assert "behind" in found.found
