"""The log of a process of a local cluster: whole, bounded, and never in the way of the process."""

from __future__ import annotations

import os
from pathlib import Path

from drivetrain.cli.clusters.local_log import RotatedLog, follow_output


def sizes(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in sorted(path.parent.iterdir())}


def test_a_full_log_is_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "master-1.log"
    log = RotatedLog(path, size_bytes=10, count=3)
    for number in range(50):
        log.write(f"{number:04d}\n".encode())
    log.close()
    assert sizes(path) == {"master-1.log": 10, "master-1.log.1": 10, "master-1.log.2": 10}
    kept = [path.with_name(f"master-1.log{end}").read_text() for end in (".2", ".1", "")]
    assert "".join(kept).split() == [f"{number:04d}" for number in range(44, 50)]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_goes_on_behind_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.log"
    for said in (b"one\n", b"two\n"):
        log = RotatedLog(path, 1_000, 2)
        log.write(said)
        log.close()
    assert path.read_bytes() == b"one\ntwo\n"


def test_what_cannot_be_written_is_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "worker-1.log"
    path.parent.mkdir()
    log = RotatedLog(path, size_bytes=4, count=2)
    log.write(b"1234")
    path.rename(tmp_path / "away")
    path.parent.rmdir()  # so that the next file cannot be opened
    log.write(b"lost")
    log.write(b"too")
    path.parent.mkdir()
    log.write(b"back\n")
    log.close()
    assert path.with_name("worker-1.log.1").read_bytes() == b"[7 bytes could not be written]\n"
    assert path.read_bytes() == b"back\n"


def test_all_output_is_in_the_log_when_its_thread_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "master-1.log"
    read_end, write_end = os.pipe()
    thread = follow_output(os.fdopen(read_end, "rb", buffering=0), RotatedLog(path, 10**6, 2), "master-1")
    said = b"".join(b"line %d\n" % number for number in range(20_000))
    with os.fdopen(write_end, "wb") as output:
        output.write(said)
    thread.join(30)
    assert path.read_bytes() == said
