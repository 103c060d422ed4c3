"""Checks of the machine: memory, disk, network.

Called by `drivetrain doctor`. Each check does what a run would do: it writes a file, binds a port, resolves a
name.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from drivetrain.cli.checks.finding import Finding, Verdict
from drivetrain.config import show_size_bytes

_MIB: Final = 2**20
PYTHON_SIDE_BYTES: Final = 512 * _MIB
"""The memory of this process, Spark's Python workers and RocksDB, in addition to the Java heap."""
ENOUGH_DISK_BYTES: Final = 5 * 2**30
TOO_LITTLE_DISK_BYTES: Final = 200 * _MIB
_CONNECT_TIMEOUT_S: Final = 3.0
_NO_LIMIT_BYTES: Final = 2**60


def check_memory(
    driver_memory_bytes: int,
    master: str,
    meminfo: Path = Path("/proc/meminfo"),
    cgroup: Path = Path("/sys/fs/cgroup"),
) -> Finding:
    """Whether the Java heap and the Python side fit into this machine or container."""
    total, available = _memory_bytes(meminfo)
    limit = _cgroup_limit_bytes(cgroup)
    usable = min(total, limit)
    needed = driver_memory_bytes + PYTHON_SIDE_BYTES
    scope = " (limit of this container)" if limit < total else ""
    found = (
        f"{_size(usable)}{scope}, {_size(min(available, usable))} free; "
        f"spark.driver-memory is {show_size_bytes(driver_memory_bytes)}"
    )
    if usable < needed:
        fitting = max(512, (usable - PYTHON_SIDE_BYTES) // _MIB // 2)
        return Finding("memory", Verdict.FAIL, found, f"lower it: --set spark.driver-memory='{fitting} MiB'")
    if available < needed:
        return Finding("memory", Verdict.WARN, found, "stop other programs, or lower spark.driver-memory")
    if master.startswith("local") and driver_memory_bytes * 8 < usable:
        return Finding("memory", Verdict.OK, f"{found} (there is room for more)")
    return Finding("memory", Verdict.OK, found)


def check_state_dir(state_dir: str, key: str = "state.dir") -> Finding:
    """Whether the directory of states, which `key` names, can be written and has enough space."""
    return _check_folder(key, Path(state_dir), f"name another directory: --set {key}=DIR")


def check_temporary_dir(environ: Mapping[str, str]) -> Finding:
    """Whether Spark's scratch directory (shuffles, spilled data) can be written and has enough space."""
    named = environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    try:
        path = Path(named or tempfile.gettempdir())
    except FileNotFoundError as error:
        return Finding("temporary files", Verdict.FAIL, str(error), "name a directory by TMPDIR")
    return _check_folder("temporary files", path, "name another directory by TMPDIR (or SPARK_LOCAL_DIRS)")


def check_ports() -> Finding:
    """Whether this process may listen on the loopback address, as Spark and the actors do."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            with socket.create_connection(listener.getsockname(), timeout=_CONNECT_TIMEOUT_S):
                pass
    except OSError as error:
        return Finding(
            "ports",
            Verdict.FAIL,
            f"cannot listen on 127.0.0.1 and connect to it: {error}",
            "bring the loopback interface up (ip link set lo up), and allow connections on it",
        )
    return Finding("ports", Verdict.OK, "listening on 127.0.0.1 works")


def check_hostname(environ: Mapping[str, str]) -> Finding:
    """Whether this machine's own name resolves; Spark looks it up when it starts."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        found = f"{name} does not resolve: {error}"
        if environ.get("SPARK_LOCAL_IP"):
            return Finding("host name", Verdict.OK, f"{found}; SPARK_LOCAL_IP is used instead")
        return Finding(
            "host name",
            Verdict.WARN,
            found,
            f"add a line '127.0.1.1 {name}' to /etc/hosts, or set SPARK_LOCAL_IP",
        )
    return Finding("host name", Verdict.OK, f"{name} is {address}")


def check_master(master: str) -> Finding:
    """Whether the Spark master answers, when it is a standalone one."""
    if not master.startswith("spark://"):
        return Finding("Spark master", Verdict.OK, master)
    for place in master.removeprefix("spark://").split(","):
        parts = urlsplit(f"//{place}")
        try:
            with socket.create_connection((parts.hostname or "", parts.port or 7077), _CONNECT_TIMEOUT_S):
                return Finding("Spark master", Verdict.OK, f"{place} answers")
        except (OSError, ValueError):
            continue
    return Finding(
        "Spark master",
        Verdict.FAIL,
        f"nothing answers at {master}",
        "start it, or run here: --set spark.master='local[*]'",
    )


def _check_folder(check: str, path: Path, remedy: str) -> Finding:
    existing = path.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        free = shutil.disk_usage(existing).free
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".drivetrain-doctor-") as probe:
            probe.write(b"written by drivetrain doctor")
            probe.flush()
    except OSError as error:
        return Finding(check, Verdict.FAIL, f"{path} cannot be written: {error.strerror}", remedy)
    found = f"{path}, {_size(free)} free"
    if free < TOO_LITTLE_DISK_BYTES:
        return Finding(check, Verdict.FAIL, found, f"make room, or {remedy}")
    if free < ENOUGH_DISK_BYTES:
        return Finding(check, Verdict.WARN, found, f"little for long runs: make room, or {remedy}")
    return Finding(check, Verdict.OK, found)


def _memory_bytes(meminfo: Path) -> tuple[int, int]:
    """Total and available memory from the kernel, else from the C library."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        return (_kib(lines["MemTotal"]), _kib(lines["MemAvailable"]))
    except (OSError, KeyError, ValueError):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total


def _kib(field: str) -> int:
    return int(field.split()[0]) * 1024


def _cgroup_limit_bytes(cgroup: Path) -> int:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            written = (cgroup / name).read_text().strip()
        except OSError:
            continue
        if written.isdigit():
            return int(written)
    return _NO_LIMIT_BYTES


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
