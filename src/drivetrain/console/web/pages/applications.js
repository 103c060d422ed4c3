// @ts-check
// All applications, the newest first.

import { html, useState } from "../lib/dom.js";
import { showClock, showCount } from "../lib/figures.js";
import { link } from "../lib/router.js";
import { applications, isOfRuns, isOverState } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Badge } from "../parts/badge.js";
import { Empty, Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/answers").ApplicationSummary} Line */

export function ApplicationsPage() {
  const [search, setSearch] = useState("");
  const [which, setWhich] = useState("all");
  const all = [...(applications.value?.values() ?? [])].sort((one, other) => other.submitted_ms - one.submitted_ms);
  const shown = all.filter(
    (one) =>
      one.app_id.toLowerCase().includes(search.toLowerCase()) &&
      (which === "all" || (which === "live" ? !isOverState(one.state) : one.state === which)),
  );
  return html`
    <div class="head">
      <h1>Applications</h1>
      <div class="tools">
        <label class="field">Search <input type="search" data-search value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} /></label>
        <label class="field">
          Show
          <select value=${which} onChange=${(/** @type {any} */ event) => setWhich(event.target.value)}>
            <option value="all">all</option>
            <option value="live">not over yet</option>
            <option value="failed">failed</option>
            <option value="succeeded">succeeded</option>
            <option value="killed">killed</option>
          </select>
        </label>
      </div>
    </div>
    <${Panel} title="Applications" note=${applications.value ? `${showCount(shown.length)} of ${showCount(all.length)}` : null}>
      ${
        applications.value == null
          ? html`<${Empty}>Waiting for the console …<//>`
          : shown.length
            ? html`<${Table} label="Applications" rows=${shown} id=${(/** @type {Line} */ one) => one.app_id} columns=${isOfRuns.value ? COLUMNS_OF_RUNS : COLUMNS} most=${200} />`
            : html`<${Empty}>${all.length ? "No application matches." : isOfRuns.value ? "Nothing runs here yet. A run is shown once Spark has started." : html`No application has been submitted yet. Submit one here, or with <code>drivetrain submit app.py</code>.`}<//>`
      }
    <//>
  `;
}

/** @type {import("../parts/table.js").Column<Line>[]} */
const COLUMNS = [
  {
    label: "Application",
    heads: true,
    by: (one) => one.name,
    cell: (one) =>
      html`<a href=${link(["apps", one.app_id])}><${Said} of=${one.app_id} class="name" title=${visible(one.app_id)} /></a>`,
  },
  { label: "State", by: (one) => one.state, cell: (one) => html`<${Badge} of=${one.state} />` },
  { label: "Clock (UTC)", by: (one) => one.clock_ms, cell: (one) => showClock(one.clock_ms) },
  { label: "Submitted (UTC)", by: (one) => one.submitted_ms, cell: (one) => showClock(one.submitted_ms) },
  { label: "Ended (UTC)", by: (one) => one.ended_ms, cell: (one) => showClock(one.ended_ms) },
  {
    label: "Masters",
    title: "Number of its application masters so far",
    number: true,
    by: (one) => one.epoch,
    class: (one) => (one.epoch > 1 ? "warn" : ""),
    cell: (one) => showCount(one.epoch),
  },
  {
    label: "File",
    by: (one) => one.file,
    cell: (one) => html`<${Said} of=${one.file} class="name mono" title=${visible(one.file)} />`,
  },
  { label: "Why", class: "wrap", cell: (one) => html`<${Said} of=${one.why ?? ""} />` },
];

/** A run of this machine has neither masters nor a file that anybody else has. */
const COLUMNS_OF_RUNS = COLUMNS.filter((one) => one.label !== "Masters" && one.label !== "File").map((one) =>
  one.label === "Submitted (UTC)" ? { ...one, label: "Started (UTC)" } : one,
);
