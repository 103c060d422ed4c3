"""Every page of the dashboard, served by a real console process that asks a recorded cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboard import Dashboard, colours, press
from recorded_cluster import HOSTILE, LINES, MANY
from recorded_state import LETTERS
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys

from nightly_run import is_nightly

HERE = Path(__file__).parent
APPLICATIONS = ("many-41", "shop-40", "calm-39", "recovering-38", "waiting-37", "failed-36", "succeeded-35")
RUNNING = (
    "",
    "/graph",
    "/clocks",
    "/channels",
    "/batches",
    "/errors",
    "/dead-letters",
    "/late-messages",
    "/states",
    "/versions",
    "/checkpoints",
)
LARGE = ("", "/graph", "/channels", "/batches") if is_nightly() else ("/graph", "/batches")
"""Pages of two hundred fragments."""
OTHERS = {"many-41": LARGE, "failed-36": ("", "/errors", "/versions")}
PAGES = (
    "/",
    "/cluster",
    *(f"/apps/shop-40{page}" for page in RUNNING),
    *(f"/apps/{app}" for app in APPLICATIONS if app != "shop-40"),
    *(f"/apps/{app}{page}" for app, pages in OTHERS.items() for page in pages if page),
    *(
        pytest.param(f"/apps/{app}{page}", marks=pytest.mark.nightly("the same page of shop-40"))
        for app, pages in OTHERS.items()
        for page in RUNNING
        if page not in pages
    ),
)


def phone(browser: Chrome) -> None:
    """The size of a small phone."""
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


# -- every page ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_safe_and_can_be_read_everywhere(dashboard: Dashboard, page: str) -> None:
    """No page runs what data says nor asks another server: the fixture looks for both.

    Text has a contrast of at least 4.5 : 1 (WCAG 2, AA) in both themes. No page is wider than a phone. Screen
    readers find the parts of a page and a name for each control.
    """
    dashboard.open(page)
    dashboard.wait_for(".connection.live")
    heading = dashboard.wait_for("main h1").text
    assert heading == {"/": "Applications", "/cluster": "Cluster"}.get(
        page, page.split("/")[2] if page[1:5] == "apps" else ""
    )
    assert dashboard.script("return document.documentElement.lang") == "en"
    assert dashboard.script("return document.querySelectorAll('header.bar, main, nav').length") >= 3
    assert dashboard.script("return document.querySelectorAll('h1').length") == 1
    assert dashboard.script(UNNAMED) == []
    for scheme in ("light", "dark"):
        colours(dashboard.browser, scheme)
        dashboard.wait_until("document.documentElement.dataset.theme === arguments[0]", scheme)
        assert dashboard.script(FAINT) == [], scheme
    phone(dashboard.browser)
    dashboard.wait_until("innerWidth === 360")
    assert dashboard.script("return document.documentElement.scrollWidth") == 360


FAINT = """
const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const over = (colours) => {
  canvas.clearRect(0, 0, 1, 1);
  for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
  return canvas.getImageData(0, 0, 1, 1).data;
};
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const visible = {checkOpacity: true, checkVisibilityCSS: true};
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !element.checkVisibility(visible)) continue;
  if (element.closest('option, noscript, .hidden-text, :disabled')) continue;
  const grounds = [];
  for (let one = element; one; one = one.parentElement) {
    grounds.unshift(getComputedStyle(one).backgroundColor);
  }
  const ground = over(grounds), ink = over([...grounds, getComputedStyle(element).color]);
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < 4.5) found.push([element.className, walk.currentNode.data.slice(0, 40), contrast]);
}
return found;
"""


UNNAMED = """
const named = (one) => one.getAttribute('aria-label') || one.title || one.textContent.trim()
  || (one.labels && one.labels.length) || one.querySelector('img[alt]:not([alt=""])');
return [...document.querySelectorAll('a, button, input, select, textarea, nav, [role], [tabindex="0"]')]
  .filter((one) => one.checkVisibility() && !named(one) && one.getAttribute('role') !== 'presentation')
  .map((one) => one.outerHTML.slice(0, 120));
"""


# -- what pages show -------------------------------------------------------------------------------------


def test_the_diagnosis_names_the_slow_fragment_and_the_way_to_it(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40")
    dashboard.wait_for(".verdict.warning .sentence", "by_day does not keep up")
    steps = dashboard.script(
        "return [...document.querySelectorAll('.verdict .chain li')].map((one) => one.textContent)"
    )
    assert steps[:-1] == [
        "orders waits for by_minute to catch up",
        "by_minute waits for by_hour to catch up",
        "by_hour waits for by_day to catch up",
    ]
    assert "39.8 s of the last 41.0 s (96 %) went to writing to warehouse" in steps[-1]


def test_the_graph_shows_red_what_is_blocked_at_the_coordinates_of_the_server(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/graph")
    dashboard.wait_for(".graph-channel.blocked", "full for")
    assert dashboard.script("return document.querySelectorAll('.graph-channel').length") == 4
    assert dashboard.script("return document.querySelectorAll('.graph-channel.blocked').length") == 3
    assert dashboard.script("return document.querySelectorAll('.graph-lines path.blocked').length") >= 6
    where = "return [...document.querySelectorAll('.graph-processor')].map((one) => one.style.cssText)"
    before = dashboard.script(where)
    figure = dashboard.script("return document.querySelector('.graph-fragment .figure').textContent")
    dashboard.wait_until(
        "document.querySelector('.graph-fragment .figure').textContent !== arguments[0]", figure
    )
    assert dashboard.script(where) == before, "a node jumped"


def test_a_node_of_the_graph_shows_its_source_line(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/graph")
    dashboard.click(".graph-processor", "by_minute")
    dashboard.wait_for(".graph-details", "recorded_cluster.py:")
    assert "at=by_minute" in dashboard.browser.current_url
    press(dashboard, Keys.TAB, Keys.ESCAPE)


def test_clocks_show_which_fragment_holds_the_clock(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/clocks")
    assert "by_day" in dashboard.wait_for("li.holds").text
    assert dashboard.script("return document.querySelectorAll('li.holds').length") == 1


def test_batches_show_their_phases_and_name_the_longest(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/batches")
    slow = dashboard.wait_for(".batch-row", "by_day").text
    assert "mostly sinks: 39.7 s, of which 39.7 s in warehouse" in slow
    assert "longer than its trigger of 10.0 s" in slow
    assert "mostly waiting: 9.4 s" in dashboard.wait_for(".batch-row", "by_hour").text
    dashboard.wait_until("document.querySelectorAll('.batch-row .flame.thin').length === 5")
    widths = """
    const width = (one) => one.getBoundingClientRect().width;
    return [...document.querySelectorAll('.flame')].map(
      (flame) => [width(flame), [...flame.children].map(width).reduce((one, other) => one + other, 0)]);
    """
    for whole, parts in dashboard.script(widths):
        assert whole == pytest.approx(parts, abs=1)
    mean = dashboard.script("return document.querySelector('.flame.thin').getAttribute('aria-label')")
    assert mean.startswith("Mean of ")
    assert dashboard.wait_for("[aria-label='The last batches in numbers'] tbody th", "by_day")


def shown_spans(length: str) -> str:
    """A script: how many curves are there. It depends on how long this console has run: it records, too."""
    return (
        "[...document.querySelectorAll('.plot')].filter(plot =>"
        f" /of the last {length}/.test(plot.getAttribute('aria-label'))).length"
    )


def test_curves_begin_before_the_page_was_opened(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40")
    dashboard.wait_until(f"{shown_spans('1[45] min')} === 6")


def test_curves_have_a_choice_of_span(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40")
    for span, length in (("6 hours", "[56] h"), ("26 hours", "2[456] h"), ("15 minutes", "1[45] min")):
        dashboard.click(".spans option", span)
        dashboard.wait_until(f"{shown_spans(length)} > 3")


def test_a_fragment_shows_its_state_and_its_latency(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40")
    dashboard.wait_for("[aria-label=Fragments] td", "90 MB")
    dashboard.wait_for("[aria-label=Fragments] td", "41.2 s, 41.9 s")
    dashboard.open("/apps/shop-40/graph?at=by_day")
    dashboard.wait_for(".graph-details dd", "90 MB, 218,000 rows")


def test_dead_letters_are_shown_page_by_page(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/dead-letters")
    dashboard.wait_for("h2 ~ .note", f"{LETTERS} kept")
    first = f'{{"sku": "B-{LETTERS - 1}"}}'
    assert first in dashboard.wait_for("article.error", "KeyError: 'B-1027'").text
    for oldest_shown in (LETTERS - 100, 0):
        dashboard.click("button.action:enabled", "Older")
        dashboard.wait_for("article.error", f'{{"sku": "B-{oldest_shown}"}}')
    dashboard.wait_for("button.action:disabled", "Older")
    dashboard.click("button.action", "Newest")
    dashboard.wait_for("article.error", first)


def test_late_messages_are_shown_page_by_page_with_the_clock_then(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/late-messages")
    dashboard.wait_for("article.error", "behind the clock")
    newest = f'{{"sku": "B-{LETTERS - 1}"}}'
    assert newest in dashboard.wait_for("article.error", "by_day").text
    dashboard.click("button.action:enabled", "Older")
    dashboard.wait_for("article.error", f'{{"sku": "B-{LETTERS - 60}"}}')
    dashboard.wait_for("button.action:disabled", "Older")
    dashboard.open("/apps/many-41/late-messages")
    dashboard.wait_for("article.error", HOSTILE[0])


def test_hostile_dead_letters_are_shown_as_they_are_written(dashboard: Dashboard) -> None:
    dashboard.open("/apps/many-41/dead-letters")
    dashboard.wait_for("article.error", HOSTILE[0])
    text = dashboard.script("return document.querySelector('main').textContent")
    for written in HOSTILE[:5]:
        assert written in text
    assert "\\x00\\x07\\x1b[31mred" in text


def test_states_are_shown_now_as_of_a_time_and_by_key(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/states")
    dashboard.wait_for("option", "alarm")
    dashboard.click("button.action:enabled", "Read")
    dashboard.wait_for("[aria-label=States] th", HOSTILE[0])
    dashboard.wait_for(".panel .note", "of 12,345 of alarm, now")
    key, at = dashboard.browser.find_elements("css selector", ".tools input")
    key.send_keys(HOSTILE[1])
    at.send_keys("2026-11-18T10:00")
    dashboard.click("button.action:enabled", "Read")
    dashboard.wait_for(".panel .note", "1 of alarm, as of 2026-11-18 10:00:00 UTC")
    assert len(dashboard.browser.find_elements("css selector", "[aria-label=States] tbody tr")) == 1


def test_versions_show_what_changed_and_what_became_of_it(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/versions")
    dashboard.wait_for("[aria-label=Versions] td", "in force, on trial")
    dashboard.wait_for("[aria-label=Versions] td", "rolled back")
    dashboard.wait_for("[aria-label=Versions] td", "alarm ")
    dashboard.wait_for("main p", f"Version 3 failed in alarm: {HOSTILE[0]}")
    dashboard.wait_for("main p", "Under way: version 4 is on trial, waiting for messages in hourly")
    dashboard.click("[aria-label='Processors of version 2']")
    dashboard.wait_for("[aria-label=Graph] th", "by_minute")


def test_any_two_versions_are_one_picture_with_signs_and_colours(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40/versions?version=4&against=1")
    dashboard.wait_for("[aria-label=Differences] tr", "its code has changed")
    marked = """
    return Object.fromEntries([...document.querySelectorAll('.graph-processor')].map((one) =>
      [one.querySelector('.label').textContent, getComputedStyle(one).borderTopStyle]));
    """
    styles = dashboard.script(marked)
    assert styles["+ by_day"] == styles["by_hour"] == "solid"
    assert styles["− by_week"] == "dashed"
    assert styles["~ suspicious"] == styles["~ alarm"] == "double"
    where = "return [...document.querySelectorAll('.graph-processor')].map((one) => one.style.cssText)"
    before = dashboard.script(where)
    dashboard.click("[aria-label=Differences] button.link", "by_week")
    dashboard.wait_for(".graph-processor.chosen", "by_week")
    assert dashboard.script(where) == before, "a node jumped"
    dashboard.click(".tools select option[value='3']", "3, ")
    dashboard.wait_until("location.hash.includes('version=3')")
    dashboard.wait_for("[aria-label='Graphs of version 3 and version 1'], .graph", "~ alarm")


def test_hostile_texts_are_shown_as_they_are_written(dashboard: Dashboard) -> None:
    dashboard.open("/apps/many-41/errors")
    dashboard.wait_for(".error", HOSTILE[0])
    text = dashboard.script("return document.querySelector('main').textContent")
    for written in HOSTILE[:5]:
        assert written in text
    assert "\\x00\\x07\\x1b[31mred\\x1b[0m\\r" in text
    assert "user\\u202egnp.exe" in text
    assert "zero\\u200bwidth\\ufeff and \\u2028 line" in text
    assert HOSTILE[7] in text
    assert "👩‍👩‍👧‍👦 family 🇳🇱 flag" in text
    assert not set("\x00\x07\x1b\u202e\u200b\ufeff\u2028") & set(text)


def test_two_hundred_fragments_are_all_there(dashboard: Dashboard) -> None:
    dashboard.open("/apps/many-41/graph")
    dashboard.wait_for(".graph-fragment")
    count = "return document.querySelectorAll('.graph-fragment').length"
    assert dashboard.script(count) == MANY + 1
    dashboard.open("/apps/many-41")
    dashboard.wait_for("tbody th")
    assert (
        dashboard.script("return document.querySelectorAll('[aria-label=Fragments] tbody tr').length")
        == MANY + 1
    )


def test_an_application_that_failed_shows_its_traceback(dashboard: Dashboard) -> None:
    dashboard.open("/apps/failed-36/errors")
    assert "prices[order[" in dashboard.wait_for("pre.trace", "KeyError").text
    dashboard.wait_for(".error .badge.bad", "ended the application")


def test_an_address_without_an_application_says_so(dashboard: Dashboard) -> None:
    dashboard.browser.get("about:blank")
    dashboard.browser.get(f"{dashboard.address}#/apps/nobody-1")
    dashboard.wait_for(".panel h2", "No such application")
    refused = dashboard.complaints()
    assert len(refused) == 1
    assert "404" in refused[0]


# -- logs ------------------------------------------------------------------------------------------------


def test_ten_thousand_lines_of_logs_are_few_nodes_and_scroll(dashboard: Dashboard) -> None:
    dashboard.open("/apps/calm-39/logs")
    dashboard.wait_for(".log .row", "still here")
    dashboard.wait_until("document.querySelectorAll('.log .row').length > 20")
    assert dashboard.script("return document.querySelectorAll('.log .row').length") < 200
    assert int(dashboard.wait_for(".panel .note", "lines").text.split()[0].replace(",", "")) > LINES
    dashboard.script("document.querySelector('.log').scrollTop = 0")
    dashboard.wait_for(".log .row", "batch 0 of calm-39")
    dashboard.wait_until("document.querySelector('input[type=checkbox]').checked === false")
    dashboard.click("label", "Follow")
    dashboard.wait_for(".log .row", "still here")


def test_lines_of_logs_are_filtered_and_hostile_ones_do_nothing(dashboard: Dashboard) -> None:
    dashboard.open("/apps/calm-39/logs")
    dashboard.wait_for(".log .row", "still here")
    dashboard.wait_for("input[data-search]").send_keys("window.attacked")
    dashboard.wait_for(".log mark", "window.attacked")
    shown = dashboard.script("return document.querySelector('.log').textContent")
    for text in HOSTILE[:5]:
        assert text in shown
    dashboard.wait_for("select").send_keys("master")
    dashboard.wait_for(".empty", "No line matches")


# -- changes ---------------------------------------------------------------------------------------------


def test_an_upload_is_planned_and_then_submitted(dashboard: Dashboard) -> None:
    dashboard.open("/submit")
    dashboard.wait_for("input[type=file]").send_keys(str(HERE / "slow_sink_application.py"))
    dashboard.click("button", "Show the plan")
    dashboard.wait_for(".problem", "setting 'go' is required")
    dashboard.wait_for("textarea").send_keys("go=/nowhere")
    dashboard.click("button", "Show the plan")
    dashboard.wait_for(".panel h2", "2. Plan")
    dashboard.wait_for(".facts dd", "once")
    dashboard.wait_for(".graph-fragment", "daily")
    assert (
        dashboard.script("return document.querySelector('[aria-label=\"Value of go\"]').value") == "/nowhere"
    )
    dashboard.click("button.first", "Submit")
    dashboard.wait_for("h1", "tills-")
    assert all("400" in said for said in dashboard.complaints())


def test_an_upload_that_is_broken_shows_the_traceback(dashboard: Dashboard, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("from drivetrain import Application\nprint(1 / 0)\n")
    dashboard.open("/submit")
    dashboard.wait_for("input[type=file]").send_keys(str(broken))
    dashboard.click("button", "Show the plan")
    dashboard.wait_for(".problem", "ZeroDivisionError")
    assert all("400" in said for said in dashboard.complaints())


def test_kill_asks_first(dashboard: Dashboard) -> None:
    dashboard.open("/apps/losing-34")
    dashboard.click(".head button.danger", "Kill")
    dashboard.wait_for("dialog[open]", "Kill this application?")
    press(dashboard, Keys.ESCAPE)
    dashboard.wait_until("document.querySelector('dialog') === null")
    dashboard.wait_for(".head .badge", "running")
    dashboard.click(".head button.danger", "Kill")
    dashboard.click("dialog[open] button.danger", "Kill it")
    dashboard.wait_for(".outcome", "It has been killed")
    dashboard.wait_for(".head .badge", "killed")
    dashboard.wait_until("document.querySelector('.head button.danger') === null")


# -- by keyboard -----------------------------------------------------------------------------------------


def test_all_can_be_reached_by_keyboard(dashboard: Dashboard) -> None:
    dashboard.open("/")
    dashboard.wait_for("tbody a", "shop-40")
    press(dashboard, Keys.TAB)
    assert dashboard.script("return document.activeElement.textContent") == "Skip to the content"
    press(dashboard, Keys.ENTER)
    assert dashboard.script("return document.activeElement.id") == "content"
    for _ in range(40):
        press(dashboard, Keys.TAB)
        if dashboard.script("return document.activeElement.textContent") == "shop-40":
            break
    press(dashboard, Keys.ENTER)
    dashboard.wait_for("h1", "shop-40")
    for keys, page in (
        ("gh", "channels"),
        ("gc", "clocks"),
        ("gg", "graph"),
        ("gb", "batches"),
        ("ge", "errors"),
        ("ga", "shop-40"),
    ):
        press(dashboard, *keys)
        dashboard.wait_until("location.hash.endsWith(arguments[0])", page)
    press(dashboard, *"gw")
    dashboard.wait_for("h1", "Cluster")
    press(dashboard, "?")
    dashboard.wait_for("dialog[open]", "Keyboard shortcuts")
    press(dashboard, Keys.ESCAPE)
    dashboard.wait_until("document.querySelector('dialog') === null")
    press(dashboard, *"gl")
    dashboard.wait_for("h1", "Applications")
    press(dashboard, "/", *"calm")
    dashboard.wait_until("document.querySelectorAll('tbody tr').length === 1")


def test_a_page_that_changes_between_two_keys_of_a_shortcut_does_not_forget_the_first(
    dashboard: Dashboard,
) -> None:
    dashboard.open("/apps/shop-40")
    dashboard.wait_for("[aria-label=Fragments] tbody th")
    dashboard.script(CHANGED_BETWEEN_KEYS)
    dashboard.wait_until("location.hash.endsWith('clocks')")


CHANGED_BETWEEN_KEYS = """
const press = (key) => document.dispatchEvent(new KeyboardEvent('keydown', {key}));
return import(new URL('lib/store.js', document.baseURI)).then(async ({job}) => {
  press('g');
  for (let n = 0; n < 3; n += 1) {
    job.value = {...job.value};
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)));
  }
  press('c');
});
"""


def test_a_table_is_sorted_by_the_column_that_is_chosen(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40")
    dashboard.wait_for("tbody th", "by_day")
    rows = "[...document.querySelectorAll('[aria-label=Fragments] tbody th')]"
    names = f"return {rows}.map((one) => one.textContent)"
    assert dashboard.script(names)[0] == "orders"
    dashboard.click("[aria-label=Fragments] button.sort", "Last batch")
    assert dashboard.script(names)[0] == "by_day"
    dashboard.wait_for("th[aria-sort=descending]", "Last batch")


# -- themes, and being away ------------------------------------------------------------------------------


def test_a_theme_that_was_chosen_stays(dashboard: Dashboard) -> None:
    dashboard.open("/")
    colours(dashboard.browser, "dark")
    dashboard.wait_until("document.documentElement.dataset.theme === 'dark'")
    dashboard.click("button[aria-label^=Colours]")
    dashboard.wait_until("document.documentElement.dataset.theme === 'light'")
    dashboard.open("/cluster")
    assert dashboard.wait_until("document.documentElement.dataset.theme") == "light"


def test_a_hidden_tab_lets_its_stream_go_and_takes_it_up_again(dashboard: Dashboard) -> None:
    dashboard.open("/apps/shop-40")
    dashboard.wait_for(".connection.live")
    first = dashboard.browser.current_window_handle
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, value: arguments[0]});"
    hide += "document.dispatchEvent(new Event('visibilitychange'))"
    dashboard.script(hide, True)
    dashboard.wait_for(".connection.paused", "Paused")
    dashboard.script(hide, False)
    dashboard.wait_for(".connection.live", "Live")
    assert dashboard.browser.current_window_handle == first


# -- who may ---------------------------------------------------------------------------------------------


def test_a_browser_without_the_printed_address_is_told_to_open_it(dashboard: Dashboard) -> None:
    dashboard.browser.delete_all_cookies()
    dashboard.open("/apps/shop-40")
    dashboard.wait_for("main", "Open the address that drivetrain console printed")
    assert "shop-40" not in dashboard.text()
    dashboard.enter()
    dashboard.open("/apps/shop-40")
    dashboard.wait_for("h1", "shop-40")


def test_the_token_does_not_stay_in_the_address(dashboard: Dashboard) -> None:
    assert "token" in dashboard.entrance
    dashboard.enter()
    assert "token" not in dashboard.browser.current_url
    assert dashboard.script("return document.cookie") == "", "scripts cannot read the session"
