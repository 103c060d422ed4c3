"""Listings of object stores by pages, from stores that begin where they are asked to, and others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError

from drivetrain.runtime.objects import obstore_store
from drivetrain.runtime.objects.obstore_store import ObstoreStore
from drivetrain.runtime.objects.settings import StoreSettings

PAGE = 4


@pytest.mark.parametrize("heeds_offset", [True, False])
@pytest.mark.parametrize("count", [0, 3, 4, 10, 12])
def test_an_error_between_pages_costs_and_repeats_no_name(
    monkeypatch: pytest.MonkeyPatch, heeds_offset: bool, count: int
) -> None:
    names = [f"in/{number:02d}" for number in range(count)]
    asked: list[str | None] = []

    def listed(client: Any, prefix: str, *, offset: str | None, chunk_size: int) -> Iterator[list[Any]]:
        assert (prefix, chunk_size) == ("in", PAGE)
        asked.append(offset)
        found = [name for name in names if not heeds_offset or name > (offset or "")]
        for at in range(0, len(found), PAGE):
            if at == PAGE and len(asked) == 1:
                raise GenericError("HTTP error")
            now = datetime.now(UTC)
            yield [{"path": name, "size": 1, "last_modified": now} for name in found[at : at + PAGE]]

    monkeypatch.setattr(obstore_store, "PAGE", PAGE)
    monkeypatch.setattr(obstore, "list", listed)
    store = ObstoreStore("bucket", StoreSettings(access_key="${HOME}", secret_key="${HOME}"))
    assert [one.path for page in store.pages("in") for one in page] == names
    assert asked == ([None] if count <= PAGE else [None, names[PAGE - 1]])
    for after in names[:: PAGE - 1]:
        assert [one.path for page in store.pages("in", after) for one in page] == [
            name for name in names if name > after
        ]
