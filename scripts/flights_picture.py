"""Takes the picture of the dashboard that the README shows: the flights example, while it runs.

    .venv/bin/python scripts/flights_picture.py

Runs `examples/flights.py` with `--console` in a temporary directory, opens the page of its graph in
Chromium, waits until two of its fragments work at once, writes `docs/images/dashboard-flights.png`, and
stops the run.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
TARGET = ROOT / "docs" / "images" / "dashboard-flights.png"
sys.path[:0] = [str(TESTS), str(TESTS / "browser")]

from dashboard import Dashboard  # noqa: E402
from dashboard_pictures import start_browser  # noqa: E402

from free_ports import free_port  # noqa: E402

SIZE = {"width": 1240, "height": 1120, "deviceScaleFactor": 1, "mobile": False}
PATIENCE_S = 900.0
SMALL = "15000"
"""Most messages of a batch: with small batches there is time to look."""


def main() -> int:
    """Take the picture; prints its size."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place, "log")
        arguments = ["run", str(ROOT / "examples" / "flights.py"), "--console"]
        arguments += ["--set", f"console.port={free_port()}", "--set", f"run.max-batch-rows={SMALL}"]
        with open(log, "wb") as written:
            run = subprocess.Popen(
                [sys.executable, "-m", "drivetrain.cli", *arguments],
                cwd=place,
                stdout=written,
                stderr=written,
            )
        try:
            entrance = _entrance(log, run)
            browser = start_browser(place)
            try:
                take(Dashboard(browser, entrance.partition("?")[0], entrance, patience_s=PATIENCE_S))
            finally:
                browser.quit()
        finally:
            run.terminate()
            run.wait()
    sys.stdout.write(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size // 1000} kB\n")
    return 0


def _entrance(log: Path, run: subprocess.Popen[bytes]) -> str:
    """The address that the run has printed, once it has."""
    while (found := re.search(r"console: (http\S+)", log.read_text())) is None:
        if run.poll() is not None:
            raise SystemExit(log.read_text())
        time.sleep(0.2)
    return found[1]


def take(dashboard: Dashboard) -> None:
    """Open the page of the application, wait until every fragment has messages, and keep what is seen."""
    dashboard.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
    dashboard.enter()
    link = dashboard.wait_for("table a", "flights-")
    app = link.text
    dashboard.open(f"/apps/{app}/graph")
    # Two fragments at work at once; one without messages shows "0/s", or for how long it stands.
    dashboard.wait_until(
        "[...document.querySelectorAll('.graph-fragment .figure')]"
        ".filter((one) => /^[1-9][^ ]*\\/s|^[^ ]+ [kM]\\/s/.test(one.textContent)).length > 1"
    )
    time.sleep(2)  # rates need a few readings
    shot = dashboard.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    TARGET.write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    sys.exit(main())
