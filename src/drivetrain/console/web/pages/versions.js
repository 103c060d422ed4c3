// @ts-check
// The versions of the application's graph: who made each and when, what changed, and its outcome.

import { get } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { showClock, showCount, showCounted } from "../lib/figures.js";
import { usePolled } from "../lib/polled.js";
import { may } from "../lib/session.js";
import { isOver, job, snapshot } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { AskedToGoBack } from "../parts/actions.js";
import { Badge } from "../parts/badge.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";
import { Table } from "../parts/table.js";
import { ChangePanel } from "./change.js";
import { ComparedPanel } from "./compared.js";

/** @typedef {import("../lib/answers").Version} Version */
/** @typedef {import("../lib/answers").Versions} Versions */
/** @typedef {import("../lib/answers").VersionGraph} Graph */
/** @typedef {import("../lib/answers").VersionProcessor} Processor */

const EVERY_MS = 30_000;
const LIMIT_MS = 90_000;

export function VersionsPage() {
  const app = snapshot.value?.application.app_id ?? "";
  const [number, setNumber] = useState(/** @type {number | null} */ (null));
  const [wanted, setWanted] = useState(/** @type {number | null} */ (null));
  const { found, problem } = usePolled(
    (signal) => /** @type {Promise<Versions>} */ (get(["applications", app, "versions"], {}, signal, LIMIT_MS)),
    EVERY_MS,
    app,
  );
  const changes = may("user") && !isOver.value;
  const underWay = job.value?.change;
  const failed = found?.versions.filter((one) => one.why) ?? [];
  return html`
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    <${Panel} title="Versions" note=${found ? `${showCounted(found.versions.length, "version")} kept, newest first` : null}>
      ${
        found?.versions.length
          ? html`<${Table} label="Versions" rows=${found.versions} id=${(/** @type {Version} */ one) => `${one.number}`} columns=${columns(setNumber, setWanted)} />`
          : html`<${Empty}>${found ? "No version is recorded: the application has not run yet." : problem ? "Nothing could be read." : "Reading the state of the application …"}<//>`
      }
      ${underWay ? html`<p class="empty">Under way: <${Said} of=${underWay} /></p>` : null}
      ${failed.map((one) => html`<p key=${one.number} class="empty">Version ${one.number} failed in <${Said} of=${one.failed_fragment ?? "the application"} />: <${Said} of=${one.why ?? ""} /></p>`)}
    <//>
    ${found && found.versions.length > 1 ? html`<${ComparedPanel} app=${app} versions=${found.versions} />` : null}
    ${changes ? html`<${ChangePanel} key=${app} app=${app} />` : null}
    ${wanted == null ? null : html`<${AskedToGoBack} key=${wanted} app=${app} number=${wanted} onClose=${() => setWanted(null)} />`}
    ${number == null ? null : html`<${GraphOf} key=${number} app=${app} number=${number} />`}
  `;
}

/**
 * @param {(number: number) => void} onShow
 * @param {(number: number) => void} onGoBack
 * @returns {import("../parts/table.js").Column<Version>[]}
 */
function columns(onShow, onGoBack) {
  /** @type {import("../parts/table.js").Column<Version>} */
  const back = {
    label: "",
    cell: (one) =>
      one.is_in_force
        ? null
        : html`<button class="action" type="button" aria-label="Go back to version ${one.number}" onClick=${() => onGoBack(one.number)}>Go back …</button>`,
  };
  return [
    { label: "Version", heads: true, number: true, by: (one) => one.number, cell: (one) => one.number },
    { label: "Since (UTC)", by: (one) => one.made_at_ms, cell: (one) => showClock(one.made_at_ms) },
    { label: "By", by: (one) => one.made_by, cell: (one) => html`<${Said} of=${one.made_by} />` },
    { label: "How", by: (one) => one.made_how, cell: (one) => one.made_how },
    {
      label: "Outcome",
      by: (one) => one.in_words,
      cell: (one) => html`<${Badge} of=${one.in_words} kind=${kindOf(one)} />`,
    },
    { label: "Changed", class: "wrap", cell: (one) => html`<${Said} of=${changedIn(one)} />` },
    {
      label: "Processors",
      number: true,
      by: (one) => one.processors,
      cell: (one) => html`<button class="action" type="button" aria-label="Processors of version ${one.number}" onClick=${() => onShow(one.number)}>${showCount(one.processors)}</button>`,
    },
    ...(may("user") && !isOver.value ? [back] : []),
  ];
}

/** @param {Version} one */
function kindOf(one) {
  if (one.outcome === "rolled back") return "bad";
  return one.trial ? "warn" : one.is_in_force ? "good" : "";
}

/** @param {Version} one */
function changedIn({ changes, follows }) {
  const fates = Object.entries(changes).map(([id, fate]) => `${visible(id)} ${fate}`);
  return fates.join(", ") || (follows == null ? "–" : "nothing");
}

/** @param {{app: string, number: number}} props */
function GraphOf({ app, number }) {
  const { found, problem } = usePolled(
    (signal) => /** @type {Promise<Graph>} */ (get(["applications", app, "versions", `${number}`], {}, signal, LIMIT_MS)),
    3_600_000, // it never changes
    `${app} ${number}`,
  );
  const said = (/** @type {string} */ text) => html`<${Said} of=${text} />`;
  return html`
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    <${Panel} title="Graph of version ${number}">
      ${
        found
          ? html`<${Table}
            label="Graph"
            rows=${found.processors}
            id=${(/** @type {Processor} */ one) => one.processor}
            columns=${[
              { label: "Processor", heads: true, cell: (/** @type {Processor} */ one) => html`<${Said} of=${one.processor} class="name" />` },
              { label: "What it does", class: "wrap", cell: (/** @type {Processor} */ one) => said(one.text) },
              { label: "Reads", class: "wrap", cell: (/** @type {Processor} */ one) => said(one.inputs.join(", ") || "–") },
              { label: "Fragment", cell: (/** @type {Processor} */ one) => said(one.fragment ?? "–") },
              { label: "Line", cell: (/** @type {Processor} */ one) => html`<${Said} of=${one.line || "–"} class="mono" />` },
            ]}
          />`
          : html`<${Empty}>Reading …<//>`
      }
    <//>
  `;
}
