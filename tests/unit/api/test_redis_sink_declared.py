from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from drivetrain.api import sinks
from drivetrain.errors import GraphError
from drivetrain.runtime.sink_places import sink_place

SECRET = "hunter2"
URL = "redis://localhost:6379/0"


def test_a_sink_describes_where_it_writes_and_why_rows_are_there_once() -> None:
    by_key = sinks.redis("redis://app:${REDIS_PASSWORD}@cache:6380/2?health_check_interval=9", key="word")
    assert (by_key.name, by_key.guarantee) == ("* in redis://cache:6380/2", "exactly once")
    assert by_key.key == ("word",)
    assert "one transaction" in by_key.why
    assert pickle.loads(pickle.dumps(by_key)) == by_key
    stream = sinks.redis(URL, stream="events", keep="5 min")
    assert (stream.name, stream.keep_ms) == ("stream events in redis://localhost:6379/0", 300_000)
    assert sinks.redis(URL, key="k", expire="1 h").expire_ms == 3_600_000


def test_sinks_may_share_a_server_and_need_no_checkpoints() -> None:
    assert sink_place(sinks.redis(URL, key="k")) is None
    assert not sinks.needs_transactions(sinks.redis(URL, stream="events"))


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@cache:6379/0",
        f"rediss://user:{SECRET}@cache",
        f"unix:///run/redis.sock?password={SECRET}",
        f"redis://user:${{NAME}}{SECRET}@cache",
    ],
)
def test_a_password_that_is_written_out_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(GraphError, match="there is a password in the address") as caught:
        sinks.redis(url, key="k")
    assert SECRET not in str(caught.value)
    assert "REDISCLI_AUTH" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "url",
    [
        "redis://user@cache",
        "redis://:${REDIS}@cache",
        "unix:///run/redis.sock?db=1",
        "rediss://cache",
        "${REDIS_URL}",
    ],
)
def test_an_address_with_a_reference_or_without_a_password_is_fine(url: str) -> None:
    assert sinks.redis(url, key="k").url == url


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: sinks.redis("", key="k"), "needs an address"),
        (lambda: sinks.redis("http://cache", key="k"), "not the address of a Redis server"),
        (lambda: sinks.redis("redis://[cache", key="k"), "cannot be read"),
        (lambda: sinks.redis(URL), "replaces by key or appends"),
        (lambda: sinks.redis(URL, key="k", stream="s"), "replaces by key or appends"),
        (lambda: sinks.redis(URL, stream=""), "needs a name"),
        (lambda: sinks.redis(URL, stream="s", expire="1 h"), "for replacing rows"),
        (lambda: sinks.redis(URL, stream="s", value="json"), "for replacing rows"),
        (lambda: sinks.redis(URL, key="k", max_length=3), "limits a stream"),
        (lambda: sinks.redis(URL, stream="s", max_length=0), "limits a stream"),
        (lambda: sinks.redis(URL, key=["a", "a"]), "each column once"),
        (lambda: sinks.redis(URL, key="k", expire="0 ms"), "expire at once"),
        (lambda: sinks.redis(URL, key="k", value="text"), "unknown value"),  # type: ignore[arg-type]
        (lambda: sinks.redis(URL, key="k", on_loss="ignore"), "unknown on_loss"),  # type: ignore[arg-type]
        (lambda: sinks.redis(URL, key="k", on_fresh="empty"), "on_fresh is for streams"),
        (lambda: sinks.redis(URL, key="k", timeout="soon"), "timeout"),
    ],
)
def test_a_wrong_argument_is_an_error_when_the_sink_is_written(
    build: Callable[[], object], what: str
) -> None:
    with pytest.raises(GraphError, match=what):
        build()
