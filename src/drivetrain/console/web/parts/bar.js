// @ts-check
// What frames every page: the bar above with the connection, the banner when figures are old, the navigation.

import { html, useEffect, useRef } from "../lib/dom.js";
import { showSpan } from "../lib/figures.js";
import { consoleNow, live, now } from "../lib/live.js";
import { link } from "../lib/router.js";
import { connection, isFresh, job, jobAt, snapshot } from "../lib/store.js";
import { visible } from "../lib/text.js";
import { choice, choose } from "../lib/theme.js";

/** @typedef {{label: string, href: string, current: boolean, count?: number, bad?: boolean, key?: string}} Place */

/** @param {{places: Place[], onHelp?: () => void, user?: unknown}} props */
export function Bar({ places, onHelp, user }) {
  return html`<header class="bar">
    <a class="brand" href=${link([])}><img src="icon.svg" alt="Drivetrain" /><span aria-hidden="true">Drivetrain</span></a>
    ${
      places.length
        ? html`<nav aria-label="Console">
          <ul>
            ${places.map((one) => html`<li key=${one.href}><a href=${one.href} aria-current=${one.current ? "page" : undefined}>${one.label}</a></li>`)}
          </ul>
        </nav>`
        : null
    }
    <div class="right">
      ${onHelp ? html`<${Connected} />` : null} ${user}
      <${ThemeSwitch} />
      ${
        onHelp
          ? html`<button class="icon-button" type="button" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${onHelp}>?</button>`
          : null
      }
    </div>
  </header>`;
}

/** @type {Record<import("../lib/connection.js").State, string>} */
const STATES = {
  connecting: "Connecting",
  live: "Live",
  lost: "Not connected",
  paused: "Paused",
  refused: "Refused",
  complete: "Complete",
};

function Connected() {
  const state = live.state.value;
  return html`<span class="connection ${state}" role="status">${STATES[state]}</span>`;
}

const NEXT = /** @type {const} */ ({ system: "light", light: "dark", dark: "system" });
const SIGNS = { system: "◐", light: "☀", dark: "☾" };

function ThemeSwitch() {
  const mine = choice.value;
  const title = `Colours: ${mine === "system" ? "the system's" : mine}; change to ${NEXT[mine] === "system" ? "the system's" : NEXT[mine]}`;
  return html`<button class="icon-button" type="button" aria-label=${title} title=${title} onClick=${() => choose(NEXT[mine])}>
    <span aria-hidden="true">${SIGNS[mine]}</span>
  </button>`;
}

/** Why the figures on the page are not those of now, and how old they are. */
export function Banner() {
  const state = live.state.value;
  if (state === "lost" || state === "refused") {
    return html`<div class="banner" role="alert">
      <span><strong>${age(live.receivedAt.value, now.value)}</strong> ${why(live.problem.value)} ${next(live.retryAt.value)}</span>
      <button class="action" type="button" onClick=${() => live.tryNow()}>Try now</button>
    </div>`;
  }
  const at = consoleNow.value; // what the console reports has its times
  if (connection.value && !connection.value.is_connected) {
    const { problem, remedy, since_ms } = connection.value;
    return html`<div class="banner" role="alert">
      <span><strong>${age(since_ms, at)}</strong> The cluster does not answer the console${problem ? `: ${visible(problem)}` : ""}. ${visible(remedy)}</span>
    </div>`;
  }
  if (snapshot.value && job.value && !isFresh.value) {
    return html`<div class="banner" role="alert">
      <span><strong>${age(jobAt.value, at)}</strong> Its application master does not answer; another one takes over.</span>
    </div>`;
  }
  return null;
}

/** @param {import("../lib/api.js").Problem | null} problem */
function why(problem) {
  if (!problem) return "The console does not answer.";
  const who = problem.status === 503 ? "The cluster does not answer the console" : "The console has stopped sending";
  const { message, remedy } = /** @type {{message: string, remedy?: string | null}} */ (problem);
  return `${who}: ${sentence(message)}${remedy ? ` What to do: ${sentence(remedy)}` : ""}`;
}

/** @param {string} text */
function sentence(text) {
  return `${visible(text).replace(/[.]$/, "")}.`;
}

/** @param {number | null} at when it is tried again */
function next(at) {
  if (at == null) return "";
  const wait = Math.ceil((at - now.value) / 1000);
  return wait > 0 ? `Next try in ${wait} s.` : "Trying.";
}

/**
 * @param {number | null} since
 * @param {number} at
 */
function age(since, at) {
  return since == null
    ? "Nothing received yet."
    : `As of ${showSpan(Math.max(0, Math.round((at - since) / 1000) * 1000))
        .replace(".0 s", " s")
        .replace("0 ms", "0 s")} ago.`;
}

/** @param {{places: Place[], label: string}} props */
export function Side({ places, label }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const current = places.find((one) => one.current)?.href;
  useEffect(() => {
    const [box, link] = [place.current, place.current?.querySelector("[aria-current]")];
    // On a phone the navigation is a row that scrolls.
    if (box && link instanceof HTMLElement) box.scrollLeft = link.offsetLeft - (box.clientWidth - link.offsetWidth) / 2;
  }, [current]);
  return html`<nav class="side" aria-label=${label} ref=${place}>
    <ul>
      ${places.map(
        (one) => html`<li key=${one.label}>
          <a href=${one.href} aria-current=${one.current ? "page" : undefined}>
            ${one.label}${one.count ? html`<span class="count ${one.bad ? "bad" : ""}">${one.count}</span>` : null}
          </a>
        </li>`,
      )}
    </ul>
  </nav>`;
}
