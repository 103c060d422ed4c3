"""How a process meets the cluster: masters, secret, TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.actor.remote import InsecureBindError
from drivetrain.cluster.connection import masters_of, parse_masters, read_secret, remote_settings
from drivetrain.config import Config
from drivetrain.errors import ConfigError

SECRET = "a secret that is long enough for anybody"


def config(**sets: str) -> Config:
    return Config.load(None, {}, {f"cluster.{name.replace('_', '-')}": value for name, value in sets.items()})


def test_masters_are_read_in_their_order() -> None:
    assert parse_masters(" b:2, a:1 ,[::1]:7070,") == ["b:2", "a:1", "[::1]:7070"]
    assert masters_of(Config()) == ["127.0.0.1:7070"]


@pytest.mark.parametrize(
    "text", ["", ",", "a", "a:", "a:0", "a:70000", "a:1,a:1", "a:1 b:2", "http://a:1", "a:x"]
)
def test_a_bad_list_of_masters_says_how_it_is_written(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_masters(text)
    assert "HOST:PORT" in str(raised.value)
    assert "10.0.0.1:7070" in str(raised.value)


def test_the_secret_comes_from_the_environment_or_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    given = config(secret_file=str(file))
    assert read_secret(given, {}) == SECRET
    assert read_secret(given, {"DRIVETRAIN_SECRET": "another"}) == "another"
    assert read_secret(Config(), {}) is None
    assert remote_settings(given, 7, environ={}).secret == SECRET
    assert SECRET not in repr(remote_settings(given, 7, environ={}))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(mode)
    with pytest.raises(ConfigError, match="others than its owner") as raised:
        read_secret(config(secret_file=str(file)), {})
    assert "chmod 600" in str(raised.value)


def test_a_missing_or_empty_secret_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_secret(config(secret_file=str(tmp_path / "none")), {})
    empty = tmp_path / "empty"
    empty.touch(mode=0o600)
    empty.chmod(0o600)
    with pytest.raises(ConfigError, match="empty"):
        read_secret(config(secret_file=str(empty)), {})


def test_off_loopback_needs_a_secret() -> None:
    with pytest.raises(InsecureBindError):
        remote_settings(config(host="10.0.0.1"), environ={})
    settings = remote_settings(config(host="10.0.0.1"), 9, environ={"DRIVETRAIN_SECRET": SECRET})
    assert (settings.host, settings.port) == ("10.0.0.1", 9)


def test_tls_needs_all_of_its_files() -> None:
    whole = config(tls_certificate="c.pem", tls_key="k.pem", tls_authority="a.pem")
    tls = remote_settings(whole, environ={}).tls
    assert tls is not None
    assert (tls.certificate, tls.key, tls.authority) == (Path("c.pem"), Path("k.pem"), Path("a.pem"))
    with pytest.raises(ConfigError, match="TLS needs") as raised:
        remote_settings(config(tls_certificate="c.pem"), environ={})
    assert raised.value.where == "cluster.tls-key, cluster.tls-authority"


def test_the_secret_in_the_environment_is_no_unknown_key() -> None:
    Config.load(None, {"DRIVETRAIN_SECRET": SECRET})
