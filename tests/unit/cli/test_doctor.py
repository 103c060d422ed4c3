"""`drivetrain doctor`: every check says ok on a good machine, and what to do on a bad one."""

from __future__ import annotations

import importlib.metadata
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain.cli.checks import doctor, machine, software
from drivetrain.cli.checks.finding import Finding, Verdict

GIB = 2**30


@pytest.fixture
def java(tmp_path: Path):
    """Makes a JAVA_HOME whose java tells the given version."""

    def make(told: str) -> dict[str, str]:
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
        program.chmod(0o755)
        return {"JAVA_HOME": str(home)}

    return make


@pytest.fixture
def meminfo(tmp_path: Path):
    def write(total_bytes: int, available_bytes: int) -> Path:
        file = tmp_path / "meminfo"
        file.write_text(f"MemTotal: {total_bytes // 1024} kB\nMemAvailable: {available_bytes // 1024} kB\n")
        return file

    return write


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ('openjdk version "17.0.15" 2025-04-15', Verdict.OK),
        ('openjdk version "21" 2023-09-19', Verdict.OK),
        ('java version "1.8.0_392"', Verdict.FAIL),
        ('openjdk version "11.0.2" 2019-01-15', Verdict.FAIL),
        ("something else", Verdict.FAIL),
    ],
)
def test_java_is_judged_by_the_version_it_tells(java, told: str, verdict: Verdict) -> None:
    finding = software.check_java(java(told))
    assert finding.verdict is verdict
    assert (finding.remedy is None) == (verdict is Verdict.OK)


@pytest.mark.parametrize("environ", [{"PATH": "/nonexistent"}, {"JAVA_HOME": "/nonexistent"}])
def test_missing_java_says_how_to_get_it(environ: dict[str, str]) -> None:
    finding = software.check_java(environ)
    assert finding.verdict is Verdict.FAIL
    assert "openjdk-17-jre-headless" in str(finding.remedy)


def test_java_that_does_not_start_says_why(java) -> None:
    finding = software.check_java(java("Error: Unrecognized option"))
    assert "Unrecognized option" in finding.found
    assert "JDK_JAVA_OPTIONS" in str(finding.remedy)


def test_java_that_does_not_run_is_reported(java) -> None:
    environ = java("x")
    Path(environ["JAVA_HOME"], "bin", "java").write_bytes(b"\x7fELFnot a program")
    assert "does not run" in software.check_java(environ).found


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("2.3.3", Verdict.OK), ("3.0.0", Verdict.FAIL), ("2.1.4", Verdict.FAIL), (None, Verdict.FAIL)],
)
def test_pandas_must_be_below_3(
    monkeypatch: pytest.MonkeyPatch, version: str | None, verdict: Verdict
) -> None:
    real = importlib.metadata.version

    def told(name: str) -> str:
        if name != "pandas":
            return real(name)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", told)
    finding = next(finding for finding in software.check_packages() if finding.check == "pandas")
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert "pip install 'pandas>=2.2,<3'" in str(finding.remedy)


def test_packages_that_some_applications_need_are_no_failure_when_they_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        if name == "psycopg":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(importlib.metadata, "version", version)
    told = {finding.check: finding for finding in software.check_extras()}
    assert {finding.verdict for finding in told.values()} == {Verdict.OK}
    assert told["fastavro"].found == "1.2.3, for Avro messages of Kafka"
    assert told["psycopg"].found.endswith("for PostgreSQL sinks: pip install 'drivetrain[postgresql]'")


def test_versions_compare_by_number() -> None:
    assert software.version_numbers("10.2.dev1") > software.version_numbers("9.9")
    assert software.version_numbers("4.3.0rc1") == (4, 3, 0)
    assert software.version_numbers("unknown") == ()


def test_spark_home_of_another_version_is_reported(tmp_path: Path) -> None:
    assert software.check_spark_home({}).verdict is Verdict.OK
    assert software.check_spark_home({"SPARK_HOME": str(tmp_path)}).verdict is Verdict.FAIL
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "spark-core_2.13-3.5.0.jar"
    jar.touch()
    assert "Spark 3.5.0" in software.check_spark_home({"SPARK_HOME": str(tmp_path)}).found
    own = importlib.metadata.version("pyspark")
    jar.rename(jar.with_name(f"spark-core_2.13-{own}.jar"))
    assert software.check_spark_home({"SPARK_HOME": str(tmp_path)}).verdict is Verdict.OK


def test_another_python_for_the_workers_is_reported(tmp_path: Path) -> None:
    assert software.check_worker_python({}).verdict is Verdict.OK
    assert software.check_worker_python({"PYSPARK_PYTHON": sys.executable}).verdict is Verdict.OK
    assert software.check_worker_python({"PYSPARK_PYTHON": "/bin/sh"}).verdict is Verdict.WARN
    assert software.check_worker_python({"PYSPARK_PYTHON": "/nonexistent"}).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("total", "available", "limit", "verdict"),
    [
        (8 * GIB, 6 * GIB, "max", Verdict.OK),
        (8 * GIB, 1 * GIB, "max", Verdict.WARN),
        (2 * GIB, 2 * GIB, "max", Verdict.FAIL),
        (64 * GIB, 60 * GIB, str(GIB), Verdict.FAIL),
    ],
)
def test_heap_must_fit_into_the_machine_or_its_container(
    meminfo, tmp_path: Path, total: int, available: int, limit: str, verdict: Verdict
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    finding = machine.check_memory(2 * GIB, "local[*]", meminfo(total, available), tmp_path)
    assert finding.verdict is verdict
    if verdict is Verdict.FAIL:
        assert "--set spark.driver-memory=" in str(finding.remedy)


def test_memory_is_known_without_a_proc_file_system(tmp_path: Path) -> None:
    assert "GiB" in machine.check_memory(GIB, "yarn", tmp_path / "nothing", tmp_path).found


def test_state_dir_is_judged_by_writing_into_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    assert machine.check_state_dir(str(tmp_path / "a" / "b")).verdict is not Verdict.FAIL
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    file = tmp_path / "file"
    file.touch()
    finding = machine.check_state_dir(str(file / "below"))
    assert finding.verdict is Verdict.FAIL
    assert "--set state.dir" in str(finding.remedy)


def test_the_places_that_a_configuration_names_are_checked_like_given_ones(
    findings: list[Finding], command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "check_place", lambda place, _: Finding(place, Verdict.OK, "usable"))
    result = command("doctor", "s3://a/b", "--set", "state.dir=s3://states/shop", "--json")
    checked = [finding["check"] for finding in json.loads(result.stdout)["findings"]]
    assert [check for check in checked if "://" in check] == ["s3://a/b", "s3://states/shop"]
    result = command("doctor", "--set", "checkpoint.copy-to=s3://copies/shop", "--json")
    checked = [finding["check"] for finding in json.loads(result.stdout)["findings"]]
    assert [check for check in checked if "://" in check] == ["s3://copies/shop"]


@pytest.mark.parametrize(
    ("free", "verdict"), [(GIB * 50, Verdict.OK), (GIB, Verdict.WARN), (GIB // 10, Verdict.FAIL)]
)
def test_disk_is_judged_by_what_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, verdict: Verdict
) -> None:
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: type("Usage", (), {"free": free}))
    assert machine.check_temporary_dir({"SPARK_LOCAL_DIRS": str(tmp_path)}).verdict is verdict


def test_loopback_and_host_name_are_really_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.check_ports().verdict is Verdict.OK

    def refuse(*arguments: object) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(machine.socket, "gethostbyname", refuse)
    finding = machine.check_hostname({})
    assert finding.verdict is Verdict.WARN
    assert "/etc/hosts" in str(finding.remedy)
    assert machine.check_hostname({"SPARK_LOCAL_IP": "127.0.0.1"}).verdict is Verdict.OK


def test_loopback_that_cannot_be_bound_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> object:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(machine.socket, "socket", refuse)
    assert machine.check_ports().verdict is Verdict.FAIL


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_standalone_master_is_asked(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert machine.check_master("local[2]").verdict is Verdict.OK
    assert machine.check_master(f"spark://127.0.0.1:{port}").verdict is Verdict.OK
    assert machine.check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}").verdict is Verdict.OK
    for wrong in ("spark://127.0.0.1:1", "spark://127.0.0.1:port"):
        assert machine.check_master(wrong).verdict is Verdict.FAIL


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the checks find in this test."""
    found = [
        Finding("Python", Verdict.OK, "3.11"),
        Finding("memory", Verdict.WARN, "little", "stop other programs"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda config: found)
    return found


def test_warnings_alone_are_no_failure(findings: list[Finding], command) -> None:
    result = command("doctor")
    assert result.exit_code == 0
    assert "→ stop other programs" in result.stdout
    assert "ready to run, 1 to look at" in result.stdout


def test_failure_is_exit_code_1_and_the_last_line_says_so(findings: list[Finding], command) -> None:
    findings.append(Finding("Java", Verdict.FAIL, "no java", "install it"))
    result = command("doctor")
    assert result.exit_code == 1
    assert "1 missing, 1 to look at" in result.stdout


def test_json_holds_every_finding(findings: list[Finding], command) -> None:
    told = json.loads(command("doctor", "--json").stdout)
    assert told["ok"] is True
    assert told["findings"][0] == {
        "check": "configuration",
        "verdict": "ok",
        "found": "every key and value is valid",
        "remedy": None,
    }
    assert [finding["verdict"] for finding in told["findings"]] == ["ok", "ok", "warn"]


def test_wrong_configuration_is_a_finding_like_any_other(findings: list[Finding], command) -> None:
    result = command("doctor", env={"DRIVETRAIN_SPARK_DRIVER_MEMORY": "a lot"})
    assert result.exit_code == 1
    assert "DRIVETRAIN_SPARK_DRIVER_MEMORY" in result.stdout
    assert "ready" not in result.stdout


def test_all_checks_together_find_this_machine_fit_for_the_tests(command, tmp_path: Path) -> None:
    result = command("doctor", "--json", "--set", f"state.dir={tmp_path}")
    told = json.loads(result.stdout)
    checks = [finding["check"] for finding in told["findings"]]
    assert checks[:3] == ["configuration", "Python", "pyspark"]
    assert {"Java", "memory", "state.dir", "ports", "host name"} <= set(checks)
    assert [finding for finding in told["findings"] if finding["verdict"] == "fail"] == []
