"""The socket by which others speak to an application: hostile, huge and early requests, stale sockets."""

from __future__ import annotations

import contextlib
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain.errors import OutputError, UnavailableError
from drivetrain.runtime import control_socket
from drivetrain.runtime.control_socket import LARGEST_BYTES, NAME, ControlSocket, asked, is_running_at

PATIENT_S = 60.0


@contextlib.contextmanager
def listening(home: Path) -> Iterator[list[bytes]]:
    """A socket in `home` that answers with what it was asked; the requests that have come."""
    found: list[bytes] = []

    def answer(line: bytes) -> bytes:
        found.append(line)
        if line == b"raise":
            raise ValueError("a bug in what answers")
        return b"heard " + line

    control = ControlSocket(home, answer)
    try:
        yield found
    finally:
        control.close()


def connected(home: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENT_S)
    client.connect(str(home / NAME))
    return client


def test_a_request_is_answered_and_the_socket_is_the_owners_alone(tmp_path: Path) -> None:
    with listening(tmp_path):
        assert asked(tmp_path, b"state", PATIENT_S) == b"heard state"
        assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert not (tmp_path / NAME).exists()
    with pytest.raises(UnavailableError, match="does not run"):
        asked(tmp_path, b"state", PATIENT_S)


def test_whether_a_process_listens_is_seen_without_a_request(tmp_path: Path) -> None:
    assert not is_running_at(tmp_path)
    with listening(tmp_path) as found:
        assert is_running_at(tmp_path)
        asked(tmp_path, b"state", PATIENT_S)
    assert found == [b"state"]
    assert not is_running_at(tmp_path)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / NAME))
    left.close()
    assert not is_running_at(tmp_path), "a process that was killed has left its socket"


def test_a_path_that_is_too_long_to_bind_works_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30)
    home.mkdir()
    assert len(str(home / NAME)) > 108
    with listening(home):
        assert asked(home, b"state", PATIENT_S) == b"heard state"
        assert [path.name for path in home.iterdir()] == [NAME]


def test_a_socket_that_a_killed_process_has_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / NAME))
    (tmp_path / f".{NAME}-x").mkdir()
    with pytest.raises(UnavailableError, match="does not run"):
        asked(tmp_path, b"state", PATIENT_S)
    with listening(tmp_path):
        assert asked(tmp_path, b"state", PATIENT_S) == b"heard state"
        assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_what_is_huge_or_cut_off_or_makes_the_answer_fail_ends_its_connection_only(tmp_path: Path) -> None:
    with listening(tmp_path) as found:
        with connected(tmp_path) as huge, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            huge.sendall(b"x" * (LARGEST_BYTES + 100_000))
            assert huge.recv(100) == b""
        with connected(tmp_path) as cut:
            cut.sendall(b"half a requ")
            cut.shutdown(socket.SHUT_WR)
            assert cut.recv(100) == b""
        with connected(tmp_path) as bug:
            bug.sendall(b"raise\n")
            assert bug.recv(100) == b""
        assert asked(tmp_path, b"state", PATIENT_S) == b"heard state"
    assert found == [b"raise", b"state"]


def test_clients_that_say_nothing_do_not_keep_others_out_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "_PATIENCE_S", 0.2)
    with listening(tmp_path), contextlib.ExitStack() as silent:
        for _ in range(40):
            with contextlib.suppress(BlockingIOError):  # so many wait already
                silent.enter_context(connected(tmp_path))
        answered = threading.Event()
        for _ in range(600):
            with contextlib.suppress(UnavailableError):
                assert asked(tmp_path, b"state", PATIENT_S) == b"heard state"
                answered.set()
                break
            threading.Event().wait(0.1)
        assert answered.is_set()


def test_a_place_where_no_socket_can_be_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="control socket"), listening(tmp_path / "missing"):
        pass


def test_another_user_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_may_ask", lambda _: False)
    with listening(tmp_path) as found:
        with pytest.raises(UnavailableError):
            asked(tmp_path, b"state", PATIENT_S)
        assert found == []


def test_a_process_without_threads_left_answers_again_once_it_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_socket, "_MOST_CLIENTS", 2)
    with listening(tmp_path):
        start = threading.Thread.start
        refused: list[str] = []

        def refuse(thread: threading.Thread) -> None:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refuse)
        for _ in range(5):
            with pytest.raises(UnavailableError):
                asked(tmp_path, b"state", PATIENT_S)
        monkeypatch.setattr(threading.Thread, "start", start)
        assert refused == ["control"] * 5
        assert asked(tmp_path, b"state", PATIENT_S) == b"heard state"
