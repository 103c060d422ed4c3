"""The dashboard as a user uses it: opens pages, waits for their content, records events that must not
happen."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait


@dataclass
class Dashboard:
    """A browser at a console; `address` ends with a slash, `entrance` is the address with the token."""

    browser: Chrome
    address: str
    entrance: str = ""
    patience_s: float = 120

    def enter(self) -> None:
        """Open the address that the console printed, which signs the browser in."""
        self.browser.delete_all_cookies()
        self.browser.get(self.entrance)
        self.wait_for(".connection.live")

    def open(self, page: str) -> None:
        """Open a page, named by the text after the "#", in a new document."""
        self.browser.get("about:blank")
        self.browser.get(f"{self.address}#{page}")
        self.wait_for("main h1, main .panel")

    def wait_for(self, selector: str, text: str = "") -> WebElement:
        """The first element of the selector with this text in it, once there is one."""

        def found(_: Chrome) -> WebElement | None:
            # One call for all: it does not matter if a live page replaces elements meanwhile.
            element: WebElement | None = self.script(
                "return [...document.querySelectorAll(arguments[0])]"
                ".find((one) => one.textContent.includes(arguments[1])) ?? null",
                selector,
                text,
            )
            return element

        try:
            return self._wait().until(found)
        except TimeoutException as error:
            raise AssertionError(f"no {selector} with {text!r}: {self.text()[:800]}") from error

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element of the selector with this text in it, once there is one.

        A live page may replace an element between the search and the click: then it is searched for again. A
        browser drops what is clicked before it has painted the page for the first time.
        """
        self.wait_until("performance.getEntriesByType('paint').length > 0")
        for tries_left in reversed(range(5)):
            try:
                self.wait_for(selector, text).click()
            except StaleElementReferenceException:
                if not tries_left:
                    raise
            else:
                return

    def wait_until(self, expression: str, *arguments: Any) -> Any:
        """The value of an expression in JavaScript, once it is true."""
        return self._wait().until(lambda _: self.script(f"return {expression}", *arguments), expression)

    def _wait(self) -> WebDriverWait[Chrome]:
        return WebDriverWait(self.browser, self.patience_s, poll_frequency=0.05)

    def script(self, text: str, *arguments: Any) -> Any:
        """The value that a script returns."""
        return self.browser.execute_script(text, *arguments)

    def text(self) -> str:
        """All visible text."""
        return self.browser.find_element(By.TAG_NAME, "body").text

    @contextlib.contextmanager
    def beginning_with(self, script: str) -> Iterator[None]:
        """Within the block, run a script before those of each document that is opened."""
        added = self.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        try:
            yield
        finally:
            self.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    def begin(self) -> None:
        """Forget what happened before."""
        self.browser.get_log("browser")
        self.browser.get_log("performance")

    def complaints(self) -> list[str]:
        """The browser's console output since `begin`: errors, refused loads, scripts that ran."""
        said = [f"{entry['level']}: {entry['message']}" for entry in self.browser.get_log("browser")]
        if self.script("return window.attacked ?? null") is not None:
            said.append("a script of the data ran")
        return said

    def hosts(self) -> set[str]:
        """The hosts and ports to which the page has sent requests since `begin`."""
        found = set()
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                if url.scheme not in ("data", "about"):
                    found.add(f"{url.scheme}://{url.netloc}/")
        return found


def colours(browser: Chrome, scheme: str) -> None:
    """Set the colour scheme that the system prefers."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def press(dashboard: Dashboard, *keys: str) -> None:
    """Press keys one after the other, wherever the focus is."""
    actions = ActionChains(dashboard.browser)
    for key in keys:
        actions = actions.send_keys(key)
    actions.perform()
