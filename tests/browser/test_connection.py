"""What pages show when the console, the cluster or an application does not answer, or refuses to."""

from __future__ import annotations

import re

import pytest
from console_process import RecordedConsole
from dashboard import Dashboard

SKEWED = "const now = Date.now; Date.now = () => now() + 3600_000;"
"""This machine's clock is an hour ahead of the console's."""


def refusing(part: str, status: int) -> str:
    """A script: requests with this part are answered so until `letThrough`; status 0 is no answer."""
    body = f'{{title: "refused", status: {status}, detail: "the reason", remedy: "the remedy"}}'
    answer = f"new Response(JSON.stringify({body}), {{status: {status}}})"
    lost = "Promise.reject(new TypeError('Failed to fetch'))"
    return f"""
      const real = window.fetch;
      window.asked = 0;
      window.fetch = (url, given) => {{
        if (window.letThrough || !String(url).includes({part!r})) return real(url, given);
        window.asked += 1;
        return {f"Promise.resolve({answer})" if status else lost};
      }};
    """


def open_bare(dashboard: Dashboard, page: str) -> None:
    """Open a page that may have nothing to show yet."""
    dashboard.browser.get("about:blank")
    dashboard.browser.get(f"{dashboard.address}#{page}")


# -- the live stream -------------------------------------------------------------------------------------


def test_without_a_leader_a_page_names_the_reason_and_the_remedy_and_goes_on_later(
    dashboard: Dashboard, console: RecordedConsole
) -> None:
    with console.without_leader():
        open_bare(dashboard, "/apps/shop-40")
        shown = dashboard.wait_for(".banner", "no master leads").text
        assert "The cluster does not answer the console" in shown
        assert "start the masters that are missing" in shown
        dashboard.wait_for("main .problem", "no master leads")
    dashboard.wait_for("h1", "shop-40")
    dashboard.wait_for(".connection.live")
    dashboard.wait_until("document.querySelector('.banner') === null")
    assert all("503" in complaint for complaint in dashboard.complaints())


def test_a_page_says_that_an_application_master_does_not_answer_and_goes_on(
    dashboard: Dashboard, console: RecordedConsole
) -> None:
    dashboard.open("/apps/shop-40")
    dashboard.wait_for("[aria-label=Fragments] tbody th")
    with console.without_application_masters():
        dashboard.wait_for(".banner", "Its application master does not answer")
        dashboard.wait_for("[aria-label=Fragments] tbody th")
    dashboard.wait_until("document.querySelector('.banner') === null")
    assert dashboard.complaints() == []


def test_the_age_of_figures_does_not_depend_on_the_clock_of_the_browser(
    dashboard: Dashboard, console: RecordedConsole
) -> None:
    with dashboard.beginning_with(SKEWED):
        dashboard.open("/apps/shop-40/checkpoints")
        dashboard.wait_for(".figures", "Last one")
        with console.without_leader():
            shown = dashboard.wait_for(".banner", "no master leads").text
        assert re.match(r"As of \d+ s ago\.", shown), shown
        age = dashboard.script("return document.querySelector('.figures dd').textContent")
        assert re.fullmatch(r"\d+\.\d s", age), age
    assert all("503" in complaint for complaint in dashboard.complaints())


def test_a_refused_stream_is_shown_and_asked_for_again_only_by_hand(dashboard: Dashboard) -> None:
    with dashboard.beginning_with(refusing("/events", 403)):
        open_bare(dashboard, "/apps/shop-40")
        dashboard.wait_for(".connection.refused", "Refused")
        assert "the reason. What to do: the remedy." in dashboard.wait_for(".banner").text
        assert dashboard.script("return window.asked") == 1
        dashboard.script("window.letThrough = true")
        dashboard.click(".banner button", "Try now")
        dashboard.wait_for("h1", "shop-40")
        dashboard.wait_for(".connection.live")


def test_without_its_application_a_page_still_follows_the_cluster(dashboard: Dashboard) -> None:
    open_bare(dashboard, "/apps/nobody-1")
    dashboard.wait_for(".panel h2", "No such application")
    dashboard.wait_for(".connection.live")
    dashboard.click("main a", "See all applications")
    dashboard.wait_for("tbody a", "shop-40")
    assert all("404" in complaint for complaint in dashboard.complaints())


# -- logs ------------------------------------------------------------------------------------------------


def test_logs_whose_connection_broke_show_no_problem_once_it_is_back(dashboard: Dashboard) -> None:
    with dashboard.beginning_with(refusing("/logs/events", 503)):
        dashboard.open("/apps/calm-39/logs")
        dashboard.wait_for("main .problem", "the remedy")
        dashboard.wait_for(".panel .note", "not connected")
        dashboard.script("window.letThrough = true")
        dashboard.wait_for(".log .row", "still here")
        dashboard.wait_until("document.querySelector('main .problem') === null")


def test_logs_that_are_refused_for_good_are_asked_for_once(dashboard: Dashboard) -> None:
    with dashboard.beginning_with(refusing("/logs/events", 404)):
        dashboard.open("/apps/calm-39/logs")
        dashboard.wait_for("main .problem", "the remedy")
        assert dashboard.script(AFTER_TRIES) == 1


AFTER_TRIES = "return new Promise((done) => setTimeout(() => done(window.asked), 2500))"
"""The first pauses of a stream that is tried again are 0.5 and 1 s at most."""


@pytest.mark.nightly("test_followed_logs, without a browser")
def test_logs_go_on_when_their_application_is_started_again(dashboard: Dashboard) -> None:
    dashboard.open("/apps/losing-34/logs")
    dashboard.wait_for(".log .row", "still here")
    act(dashboard, "Kill", "Kill it")
    dashboard.wait_for(".panel .note", "complete")
    act(dashboard, "Restart", "Restart it")
    dashboard.wait_for(".head .badge", "running")
    dashboard.wait_until("!document.querySelector('.panel .note').textContent.includes('complete')")
    dashboard.wait_for(".log .row", "still here")


def act(dashboard: Dashboard, button: str, confirmation: str) -> None:
    """Have the application of the page do something."""
    dashboard.click(".head button", button)
    dashboard.click("dialog[open] button", confirmation)
    dashboard.wait_until("document.querySelector('dialog') === null")


# -- what came of an action --------------------------------------------------------------------------------


def test_an_operation_that_the_console_does_not_know_any_more_ends_with_words(dashboard: Dashboard) -> None:
    with dashboard.beginning_with(refusing("/operations/", 404)):
        dashboard.open("/apps/recovering-38")
        act(dashboard, "Kill", "Kill it")
        shown = dashboard.wait_for(".outcome .problem", "The outcome is unknown").text
        assert "the reason" in shown
        assert "What to do: the remedy" in shown
        assert dashboard.script(AFTER_TRIES) == 1
        dashboard.click(".outcome button[aria-label=Dismiss]")
        dashboard.wait_until("document.querySelector('.outcome') === null")


@pytest.mark.parametrize("status", [0, 503])
def test_an_operation_of_a_console_that_is_away_for_a_moment_is_asked_for_again(
    dashboard: Dashboard, status: int
) -> None:
    with dashboard.beginning_with(refusing("/operations/", status)):
        dashboard.open("/apps/recovering-38")
        if dashboard.script("return document.querySelector('.head button.danger') === null"):
            act(dashboard, "Restart", "Restart it")
        else:
            act(dashboard, "Kill", "Kill it")
        dashboard.wait_until("window.asked > 1")
        dashboard.script("window.letThrough = true")
        dashboard.wait_for(".outcome button[aria-label=Dismiss]")
        assert dashboard.script("return document.querySelector('.outcome .problem')") is None
