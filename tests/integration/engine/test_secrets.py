"""A secret of an application is used, fails and is replaced, and nothing that is written holds it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from harness import Harness

from drivetrain import Application, savepoint, sinks, sources
from drivetrain.api.settings import given_settings
from drivetrain.errors import OperatorError
from drivetrain.spark.batch.read_dead_letters import dead_letters

PLANTED = "planted-in-a-file-77e"


def keyed(reference: str, drive: Harness) -> Application:
    """Counts per key that grow by the length of the secret, and functions that fail with it in their text."""
    with given_settings({"password": reference}):
        app = Application("keyed")
        password = app.setting("password", secret=True)

    def lengthened(value: str) -> str:
        if value == "bad":
            raise ValueError(f"not with {password.value()}")
        return f"{value} {len(password.value())}"

    def added(total: int, _message: object) -> int:
        return total + len(password.value())

    lines = app.read(sources.text(drive.directory / "in"))
    good = lines.map(lengthened, returns=str, on_error="dead_letter")
    good.group_by(key="value").fold(lambda: 0, added, returns=int).sink(sinks.json(drive.out()))
    return app


def test_a_secret_is_in_no_state_savepoint_result_or_dead_letter(
    drive: Harness, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path_factory.mktemp("secret") / "key"
    place.write_text(PLANTED)
    (drive.directory / "in").mkdir()
    (drive.directory / "in" / "a.txt").write_text("one\nbad\none\n")
    app = keyed(f"${{file:{place}}}", drive)
    assert drive.run(app, checkpoint__mode="on").dead_lettered == 1
    (letter,) = dead_letters(app, drive.config()).to_pylist()
    assert "not with ***" in letter["error"]
    kept = Path(savepoint(app, drive.directory / "kept", config=drive.config()))
    assert (kept / "manifest.json").is_file()

    place.with_name("new").write_text(PLANTED[::-1])
    again = drive.run(keyed(f"${{file:{place.with_name('new')}}}", drive), checkpoint__mode="on")
    assert again.outcome == "already finished"
    state = [path for path in (drive.directory / "state").iterdir() if path.is_dir()]
    assert len(state) == 1, "with another secret it is the same application"

    failing = Application("failing")
    with given_settings({"password": f"${{file:{place}}}"}):
        password = failing.setting("password", secret=True)

    def fails(value: str) -> str:
        raise ValueError(f"{value}: not with {password.value()}")

    failing.read(sources.text(drive.directory / "in")).map(fails, returns=str).sink(sinks.none())
    with pytest.raises(OperatorError) as raised:
        drive.run(failing)
    said = "".join([str(raised.value), raised.value.user_traceback, *capsys.readouterr()])
    assert "not with ***" in said
    assert PLANTED not in said
    written = [path for path in drive.directory.rglob("*") if path.is_file()]
    assert len(written) > 20
    for path in written:
        with contextlib.suppress(FileNotFoundError):  # Spark's own cleaning goes on
            assert PLANTED.encode() not in path.read_bytes(), path
