// @ts-check
// The few figures that one looks at first, side by side.

import { html } from "../lib/dom.js";

/** @typedef {{label: string, value: unknown, below?: unknown, kind?: "warn" | "bad" | "", small?: boolean}} Shown */

/** @param {{of: (Shown | null | false | undefined)[]}} props */
export function Figures({ of }) {
  const shown = /** @type {Shown[]} */ (of.filter(Boolean));
  return html`<dl class="figures">
    ${shown.map(
      (one) => html`<div key=${one.label} class=${one.kind}>
        <dt>${one.label}</dt>
        <dd class=${one.small ? "small" : ""}>${one.value}</dd>
        ${one.below == null ? null : html`<dd class="below">${one.below}</dd>`}
      </div>`,
    )}
  </dl>`;
}

/** @param {{of: ([string, unknown] | null | false | undefined)[]}} props */
export function Facts({ of }) {
  const shown = /** @type {[string, unknown][]} */ (of.filter((one) => one && one[1] != null && one[1] !== ""));
  return html`<dl class="facts">
    ${shown.map(([label, value]) => html`<dt>${label}</dt><dd>${value}</dd>`)}
  </dl>`;
}
