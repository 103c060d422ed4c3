"""A real headless Chromium for the tests of what a user sees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from console_process import RecordedConsole
from dashboard import Dashboard, colours
from selenium import webdriver

_ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # the sandbox refuses to run as root, which containers do
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-extensions",
    "--disable-smooth-scrolling",
    "--disable-features=Translate,OptimizationHints,MediaRouter,PaintHolding,BackForwardCache,IsolateOrigins",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
    "--renderer-process-limit=1",  # a new process for each page would cost a third of what the browser takes
    "--disable-site-isolation-trials",
    "--window-size=1400,1000",
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One browser for the run, with an empty profile."""
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.fail("chromium and chromedriver are needed: scripts/setup.sh --browser installs them")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (*_ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    started.set_page_load_timeout(30)
    yield started
    started.quit()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedConsole]:
    """A console with the recorded cluster."""
    started = RecordedConsole(tmp_path_factory.mktemp("console") / "kept")
    try:
        started.start()
        yield started
    finally:
        started.kill()


@pytest.fixture
def dashboard(browser: webdriver.Chrome, console: RecordedConsole) -> Iterator[Dashboard]:
    """A browser of the usual size in light colours; at the end it must have seen no errors."""
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    colours(browser, "light")
    shown = Dashboard(browser, console.address, console.entrance)
    if not console.is_entered:
        shown.enter()
        console.is_entered = True
    storage = {"origin": console.address.rstrip("/"), "storageTypes": "local_storage"}
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", storage)
    shown.begin()
    yield shown
    assert shown.complaints() == []
    assert shown.hosts() <= {shown.address}
