"""Settings that cannot be made, and why."""

from __future__ import annotations

import pytest

from drivetrain.actor.remote import InsecureBindError, RemoteSettings
from drivetrain.actor.remote.remote_settings import is_loopback
from drivetrain.errors import ConfigError, UserError


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.org", "::"])
def test_off_loopback_a_secret_is_required(host: str) -> None:
    with pytest.raises(InsecureBindError) as caught:
        RemoteSettings(host=host)
    assert isinstance(caught.value, UserError)
    assert "secret" in str(caught.value)
    with pytest.raises(InsecureBindError):
        RemoteSettings(host="127.0.0.1", bind_host=host)
    keys = RemoteSettings(host=host, secret="long enough for this").shared_keys
    assert keys is not None
    assert keys.keys_for("any") == (b"long enough for this",)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_on_loopback_none_is_needed(host: str) -> None:
    assert is_loopback(host)
    assert RemoteSettings(host=host).secret is None


def test_a_short_secret_is_refused_and_no_secret_is_ever_shown() -> None:
    with pytest.raises(ConfigError, match="too short") as caught:
        RemoteSettings(secret="hunter2")
    assert "hunter2" not in str(caught.value)
    assert "a long enough secret" not in repr(RemoteSettings(secret="a long enough secret"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 70_000},
        {"frame_limit_bytes": 10},
        {"queue_limit": 0},
        {"heartbeat_interval_ms": 0},
        {"threshold": 0.0},
        {"min_backoff_ms": 100, "max_backoff_ms": 50},
        {"bind_port": 5},
    ],
)
def test_values_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        RemoteSettings(**wrong)  # type: ignore[arg-type]


def test_the_frame_limit_is_ten_mebibytes_unless_set() -> None:
    assert RemoteSettings().frame_limit_bytes == 10_485_760
