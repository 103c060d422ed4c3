"""The guide to remote actors: its code runs, and its table of log lines is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drivetrain.actor.remote import RemoteSettings
from drivetrain.config import Config

GUIDE = Path(__file__).parents[4] / "docs" / "guide" / "remote-actors.md"


def test_the_guides_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), {"__name__": "guide"})
    assert capsys.readouterr().out.splitlines() == ["Hello, Ada!"]


def test_the_defaults_of_configuration_and_settings_agree() -> None:
    assert RemoteSettings.from_config(Config()) == RemoteSettings()


def test_the_configuration_decides_limits_and_times_and_the_caller_the_rest() -> None:
    config = Config.load(
        sets={"actor.frame-limit": "1 MiB", "actor.watch.heartbeat-pause": "9 s"}, environ={}
    )
    settings = RemoteSettings.from_config(config, host="10.0.0.1", port=7, secret="a secret long enough")
    assert (settings.frame_limit_bytes, settings.heartbeat_pause_ms) == (2**20, 9_000)
    assert (settings.host, settings.port) == ("10.0.0.1", 7)
