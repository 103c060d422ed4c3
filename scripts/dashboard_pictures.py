"""Takes the pictures of the dashboard that the guide shows, from the recorded cluster of the browser tests.

    .venv/bin/python scripts/dashboard_pictures.py

Writes `docs/images/dashboard-*.png`. It needs Chromium, as `make setup` installs it.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(TESTS), str(TESTS / "browser")]

from dashboard import Dashboard  # noqa: E402
from recorded_state import REASON_VARIABLE  # noqa: E402

from free_ports import free_port  # noqa: E402

PICTURES = {
    "late-output": ("/apps/shop-40", 1240, 760, ".verdict.warning"),
    "graph": ("/apps/shop-40/graph?at=by_day", 1240, 1000, ".graph-channel.blocked"),
    "versions": ("/apps/shop-40/versions?version=4&against=1", 1240, 2232, ".graph .mark-gone"),
    "batches": ("/apps/shop-40/batches", 1240, 500, ".flame.thin"),
    "lost-message": ("/apps/losing-34/graph?kind=processor&at=by_minute", 1240, 800, ".graph-details .facts"),
    "safe-to-stop": ("/apps/calm-39/checkpoints", 1240, 500, ".timeline"),
    "application": ("/apps/calm-39", 1240, 760, ".curves canvas"),
}


def main() -> int:
    """Take all pictures; prints their sizes."""
    with tempfile.TemporaryDirectory() as place:
        command = [
            sys.executable,
            str(TESTS / "browser" / "recorded_console.py"),
            str(free_port()),
            f"{place}/kept",
        ]
        environment = {**os.environ, REASON_VARIABLE: "ZeroDivisionError: division by zero"}
        console = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert console.stdout is not None
            entrance = console.stdout.readline().strip()
            browser = start_browser(place)
            try:
                take(Dashboard(browser, entrance.partition("?")[0], entrance, patience_s=60))
            finally:
                browser.quit()
        finally:
            console.kill()
            console.wait()
    return 0


def take(dashboard: Dashboard) -> None:
    """Open each page, wait for what it shows, and keep what is seen."""
    dashboard.enter()
    for name, (page, width, height, selector) in PICTURES.items():
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        dashboard.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        dashboard.open(page)
        dashboard.wait_for(selector)
        time.sleep(3)  # rates need a few readings
        shot = dashboard.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        target = IMAGES / f"dashboard-{name}.png"
        target.write_bytes(base64.b64decode(shot["data"]))
        sys.stdout.write(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1000} kB\n")


def start_browser(place: str) -> webdriver.Chrome:
    """A browser without a window, with an empty profile."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={place}/profile"):
        options.add_argument(argument)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


if __name__ == "__main__":
    sys.exit(main())
