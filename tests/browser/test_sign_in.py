"""Signing in with a name and a password, and what each role sees and may do."""

from __future__ import annotations

import pytest
from console_process import RecordedConsole
from dashboard import Dashboard

from drivetrain.console.access.access_file import AccessFile
from drivetrain.console.access.roles import Role

PASSWORD = "correct horse"


@pytest.fixture(autouse=True, scope="module")
def users(console: RecordedConsole) -> None:
    """A user of each role."""
    file = AccessFile(console.directory)
    for role in (Role.GUEST, Role.USER, Role.ADMIN):
        file.add_user(role.shown, role, PASSWORD)


def sign_in(dashboard: Dashboard, name: str, password: str = PASSWORD) -> None:
    """Fill in the form of a browser that nobody has signed in yet."""
    dashboard.browser.delete_all_cookies()
    dashboard.browser.get("about:blank")
    dashboard.browser.get(dashboard.address)
    dashboard.wait_for("input[name=name]").send_keys(name)
    dashboard.wait_for("input[name=password]").send_keys(password)
    dashboard.click("button", "Sign in")


def labels(dashboard: Dashboard, selector: str) -> list[str]:
    """The texts of all elements of a selector."""
    texts: list[str] = dashboard.script(
        "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())", selector
    )
    return texts


def test_a_wrong_password_gives_a_message_and_the_right_one_opens_the_page(dashboard: Dashboard) -> None:
    sign_in(dashboard, "user", "wrong horse")
    shown = dashboard.wait_for(".problem", "the name or the password is wrong").text
    assert "What to do" in shown
    assert dashboard.script("return document.querySelector('input[name=password]').value") == ""
    assert "shop-40" not in dashboard.text()
    dashboard.wait_for("input[name=password]").send_keys(PASSWORD)
    dashboard.click("button", "Sign in")
    dashboard.wait_for("tbody a", "shop-40")
    dashboard.wait_for(".user", "user")
    refused = dashboard.complaints()
    assert refused
    assert all("401" in complaint for complaint in refused)


def test_who_signs_out_sees_nothing_any_more(dashboard: Dashboard) -> None:
    sign_in(dashboard, "user")
    dashboard.wait_for("tbody a", "shop-40")
    dashboard.click("button", "Sign out")
    dashboard.wait_for("input[name=password]")
    assert "shop-40" not in dashboard.text()
    dashboard.open("/apps/shop-40")
    dashboard.wait_for("input[name=password]")
    assert "shop-40" not in dashboard.text()


def test_a_guest_sees_figures_and_neither_errors_nor_logs_nor_actions(dashboard: Dashboard) -> None:
    sign_in(dashboard, "guest")
    dashboard.click("tbody a", "recovering-38")
    dashboard.wait_for("[aria-label=Fragments] tbody th", "by_day")
    pages = " ".join(labels(dashboard, "nav.side a"))
    assert "Checkpoints" in pages
    assert "Errors" not in pages
    assert "Logs" not in pages
    assert labels(dashboard, ".head button") == []
    assert "Submit" not in labels(dashboard, "nav a")
    for page in ("errors", "logs"):
        dashboard.open(f"/apps/recovering-38/{page}")
        dashboard.wait_for("main .panel", "There is nothing to show here yet")
    dashboard.open("/submit")
    dashboard.wait_for(".panel h2", "No such page")
    dashboard.open("/cluster")
    dashboard.wait_for("h1", "Cluster")
    assert "Configuration of this console" not in labels(dashboard, ".panel h2")


def test_a_user_sees_errors_and_kills_an_application(dashboard: Dashboard) -> None:
    sign_in(dashboard, "user")
    dashboard.click("tbody a", "losing-34")
    dashboard.wait_for("nav.side a", "Logs")
    dashboard.click(".head button.danger", "Kill")
    dashboard.click("dialog[open] button.danger", "Kill it")
    dashboard.wait_for(".outcome", "It has been killed")
    dashboard.wait_for(".head .badge", "killed")
    dashboard.open("/apps/failed-36/errors")
    dashboard.wait_for("pre.trace", "KeyError")
    dashboard.open("/cluster")
    dashboard.wait_for("[aria-label=Workers] tbody th", "worker-1")
    assert "Configuration of this console" not in labels(dashboard, ".panel h2")


def test_an_admin_sees_the_configuration_of_the_console(dashboard: Dashboard) -> None:
    sign_in(dashboard, "admin")
    dashboard.wait_for("tbody a", "shop-40")
    dashboard.open("/cluster")
    dashboard.wait_for(".panel h2", "Configuration of this console")
    dashboard.wait_for("[aria-label=Configuration] code", "console.port")
