"""Java libraries in the cache: what is refused, and that nothing half is ever there."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from drivetrain.config import Config
from drivetrain.errors import ConfigError, UnavailableError
from drivetrain.spark.session import jars
from drivetrain.spark.session.kafka_connector import connector_jars

PACKAGES = ["org.example:one:1.0", "org.example:two:2.0"]


@pytest.fixture
def ivy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Ivy that puts a jar with its name inside where it is told to; the commands it got."""
    commands: list[list[str]] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "java_program", lambda: "/bin/sh")

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        place = Path(command[command.index("-retrieve") + 1]).parent
        place.mkdir()
        for name in ("one-1.0.jar", "two-2.0.jar"):
            (place / name).write_text(name)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(jars.subprocess, "run", run)
    return commands


def test_what_was_fetched_is_fetched_once(ivy: list[list[str]]) -> None:
    assert jars.cached(PACKAGES) is None
    first = jars.fetch(PACKAGES, {})
    assert [path.name for path in first] == ["one-1.0.jar", "two-2.0.jar"]
    assert jars.fetch(PACKAGES, {}) == jars.cached(PACKAGES) == first
    assert len(ivy) == 1


def test_a_jar_that_is_not_the_pinned_one_leaves_nothing_in_the_cache(ivy: list[list[str]]) -> None:
    pinned = {PACKAGES[0]: hashlib.sha256(b"one-1.0.jar").hexdigest(), PACKAGES[1]: "0" * 64}
    with pytest.raises(UnavailableError, match="not the one that was released"):
        jars.fetch(PACKAGES, pinned)
    assert jars.cached(PACKAGES) is None


def test_a_settings_file_of_the_user_is_the_one_that_counts(ivy: list[list[str]]) -> None:
    jars.fetch(PACKAGES, {}, "/etc/ivy.xml")
    assert ivy[0][ivy[0].index("-settings") + 1] == "/etc/ivy.xml"


def test_what_cannot_be_had_is_told_with_what_to_do(
    ivy: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "::::\n:: org.example#one;1.0: not found\n::::"
    failed = subprocess.CompletedProcess([], 1, told, "")
    monkeypatch.setattr(jars.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(UnavailableError, match=r"one;1.0: not found") as error:
        jars.fetch(PACKAGES, {})
    assert "kafka.jars" in str(error.value)


@pytest.mark.parametrize("package", ["a:b", "a:b:c:d:e", "a:b:c:", "a::c", "../x:y:z", 'a:b:1"'])
def test_what_is_no_package_is_refused(package: str) -> None:
    with pytest.raises(ConfigError, match="not a Java package"):
        jars.cached([package])


def test_a_proxy_of_the_environment_reaches_java() -> None:
    told = jars._proxy({"https_proxy": "http://proxy.example:8080", "no_proxy": "localhost,.example"})
    assert told == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=8080",
        "-Dhttp.nonProxyHosts=localhost|*.example",
    ]


def test_jars_of_ones_own_are_taken_as_they_are_or_missed(tmp_path: Path) -> None:
    (tmp_path / "own.jar").write_text("")
    given = Config.load(None, {}, {"kafka.jars": str(tmp_path)})
    assert connector_jars(given) == [tmp_path / "own.jar"]
    with pytest.raises(ConfigError, match="no jar of Kafka's connector"):
        connector_jars(Config.load(None, {}, {"kafka.jars": str(tmp_path / "nowhere")}))
