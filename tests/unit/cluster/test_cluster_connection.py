"""How a process meets the cluster: masters, secret, TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain.actor.remote import InsecureBindError
from drivetrain.cluster.access.keyring import Keyring
from drivetrain.cluster.access.secret_files import secrets_of
from drivetrain.cluster.access.system_names import WORKER
from drivetrain.cluster.connection import (
    keyring_of,
    masters_of,
    parse_masters,
    parse_ports,
    remote_settings,
)
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
    read, other = secrets_of(given, {}), secrets_of(given, {"DRIVETRAIN_SECRET": "another that is as long"})
    assert read is not None
    assert other is not None
    assert (read(), other()) == ((SECRET,), ("another that is as long",))
    assert secrets_of(Config(), {}) is None
    settings = remote_settings(given, 7, environ={})
    assert settings.shared_keys is not None
    assert settings.shared_keys.keys_for("master") == Keyring("client", lambda: (SECRET,)).keys_for("master")
    assert SECRET not in repr(settings)


def test_a_new_secret_above_the_old_one_is_used_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text(f"{SECRET}\n")
    keys = keyring_of(config(secret_file=str(file)), "worker", {})
    assert keys is not None
    (old,) = keys.keys_for("master")
    file.write_text(f"a new secret that is long enough\n{SECRET}\n")
    new, still = keys.keys_for("master")
    assert still == old != new
    assert len(keys.text_for("app.wc-1.1").splitlines()) == 2
    file.write_text("a new secret that is long enough\n")
    assert keys.keys_for("master") == (new,)
    for unusable in ("short", "", "one of three secrets\nanother one of three\nand the third of them\n"):
        file.write_text(unusable)
        assert keys.keys_for("master") == (new,)
    file.unlink()
    assert keys.keys_for("master") == (new,)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(mode)
    with pytest.raises(ConfigError, match="users other than the owner") as raised:
        secrets_of(config(secret_file=str(file)), {})
    assert "chmod 600" in str(raised.value)


def test_a_missing_or_empty_secret_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        secrets_of(config(secret_file=str(tmp_path / "none")), {})
    empty = tmp_path / "empty"
    empty.touch(mode=0o600)
    empty.chmod(0o600)
    with pytest.raises(ConfigError, match="empty"):
        secrets_of(config(secret_file=str(empty)), {})


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


def test_a_range_of_ports_is_read_and_is_not_for_clients() -> None:
    assert parse_ports("") is None
    assert parse_ports(" 7100-7103 ") == range(7100, 7104)
    assert parse_ports("7100") == range(7100, 7101)
    given = config(ports="7100-7199", bind_host="127.0.0.2")
    worker = remote_settings(given, system=WORKER, environ={})
    assert (worker.ports, worker.bind_host) == (range(7100, 7200), "127.0.0.2")
    assert remote_settings(given, environ={}).ports is None


@pytest.mark.parametrize("text", ["7100-", "-7100", "7199-7100", "0-10", "7100-70000", "7100,7101", "many"])
def test_a_bad_range_of_ports_says_how_it_is_written(text: str) -> None:
    with pytest.raises(ConfigError, match="7100-7199"):
        parse_ports(text)


def test_a_credential_of_systemd_may_show_rights_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o440)
    with pytest.raises(ConfigError, match="mode 440"):
        secrets_of(config(secret_file=str(file)), {})
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    read = secrets_of(config(secret_file=str(file)), {})
    assert read is not None
    assert read() == (SECRET,)
    elsewhere = tmp_path / "deeper" / "secret"
    elsewhere.parent.mkdir()
    elsewhere.write_text(SECRET)
    for path, mode in ((file, 0o444), (file, 0o460), (elsewhere, 0o440)):
        path.chmod(mode)
        with pytest.raises(ConfigError, match=f"mode {mode:o}"):
            secrets_of(config(secret_file=str(path)), {})
