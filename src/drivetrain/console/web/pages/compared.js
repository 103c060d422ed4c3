// @ts-check
// What differs between any two versions of the graph: a choice of both, a table, and one picture of both.

import { get } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { showClock } from "../lib/figures.js";
import { usePolled } from "../lib/polled.js";
import { ask, route } from "../lib/router.js";
import { Said } from "../lib/text.js";
import { ComparedView, MarkWord, Shown } from "../parts/compared_view.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/answers").Version} Version */
/** @typedef {import("../lib/answers").VersionDifference} Difference */
/** @typedef {import("../lib/answers").ProcessorDifference} Processor */

const NEVER_MS = 3_600_000; // two versions never change
const LIMIT_MS = 90_000;

/**
 * The newest version is compared with the one before until two others are chosen; the address names them.
 * @param {{app: string, versions: Version[]}} props
 */
export function ComparedPanel({ app, versions }) {
  const inForce = versions.find((one) => one.is_in_force) ?? versions[0];
  const chosen = (/** @type {string} */ name) =>
    versions.find((one) => `${one.number}` === route.value.query.get(name))?.number;
  const number = chosen("version") ?? inForce?.number;
  const follows = versions.find((one) => one.number === number)?.follows;
  const before = versions.find((one) => one.number === follows) ?? versions.find((one) => one.number !== number);
  const against = chosen("against") ?? before?.number;
  if (number == null || against == null) return null;
  const choice = (/** @type {string} */ label, /** @type {string} */ name, /** @type {number} */ of) => html`<label class="field">
    ${label}
    <select value=${of} onChange=${(/** @type {any} */ event) => ask({ version: `${number}`, against: `${against}`, [name]: event.target.value })}>
      ${versions.map((one) => html`<option key=${one.number} value=${one.number}>${one.number}, ${showClock(one.made_at_ms)}${one.is_in_force ? " (in force)" : ""}</option>`)}
    </select>
  </label>`;
  return html`<${Panel}
    title="Differences between two versions"
    tools=${html`<span class="tools">${choice("Version", "version", number)}${choice("against", "against", against)}</span>`}
  >
    <${Compared} key=${`${app} ${number} ${against}`} app=${app} number=${number} against=${against} />
  <//>`;
}

/** @param {{app: string, number: number, against: number}} props */
function Compared({ app, number, against }) {
  const [at, setAt] = useState(/** @type {string | null} */ (null));
  const { found, problem } = usePolled(
    (signal) =>
      /** @type {Promise<Difference>} */ (
        get(["applications", app, "versions", `${number}`, "difference"], { against }, signal, LIMIT_MS)
      ),
    NEVER_MS,
    `${app} ${number} ${against}`,
  );
  if (problem) return html`<${ProblemBox} of=${problem} />`;
  if (!found) return html`<${Empty}>Reading …<//>`;
  const differing = found.processors.filter((one) => one.mark !== "kept");
  const kept = found.processors.filter((one) => one.mark === "kept");
  return html`
    ${
      differing.length
        ? html`<${Table} label="Differences" rows=${differing} id=${(/** @type {Processor} */ one) => one.processor} columns=${columns(setAt)} />`
        : html`<${Empty}>Nothing differs.<//>`
    }
    ${kept.length ? html`<p class="empty">Kept: <${Said} of=${kept.map((one) => one.processor).join(", ")} /></p>` : null}
    <div class="inside"><${ComparedView} graph=${found.graph} at=${at} label="Graphs of version ${number} and version ${against}" /></div>
  `;
}

/**
 * @param {(processor: string) => void} onShow
 * @returns {import("../parts/table.js").Column<Processor>[]}
 */
function columns(onShow) {
  return [
    { label: "Processor", heads: true, by: (one) => one.processor, cell: (one) => html`<${Shown} of=${one.processor} onShow=${onShow} />` },
    { label: "Mark", by: (one) => one.mark, cell: (one) => html`<${MarkWord} of=${one.mark} />` },
    { label: "Why", class: "wrap", cell: (one) => html`<${Said} of=${one.why || "–"} />` },
    { label: "Before", class: "wrap", cell: (one) => html`<${Said} of=${one.before ?? "–"} />` },
    { label: "After", class: "wrap", cell: (one) => html`<${Said} of=${one.after ?? "–"} />` },
    { label: "Fragment", by: (one) => fragmentOf(one), cell: (one) => html`<${Said} of=${fragmentOf(one)} />` },
  ];
}

/** @param {Processor} one */
function fragmentOf(one) {
  return one.fragment_after ?? one.fragment_before ?? "–";
}
