// @ts-check
// The cluster: is there a quorum, how many slots are free, what each worker runs.

import { html, useEffect, useState } from "../lib/dom.js";
import { get } from "../lib/api.js";
import { showClock, showCount, showCounted, showShare, showSize, showSpan } from "../lib/figures.js";
import { link } from "../lib/router.js";
import { usePolled } from "../lib/polled.js";
import { may } from "../lib/session.js";
import { applications, cluster } from "../lib/store.js";
import { Said } from "../lib/text.js";
import { Outcome } from "../parts/actions.js";
import { Badge } from "../parts/badge.js";
import { Figures } from "../parts/figures.js";
import { AddWorker, RemoveWorker } from "../parts/local_workers.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/answers").Master} Master */
/** @typedef {import("../lib/answers").Worker} Worker */
/** @typedef {import("../lib/answers").ConfigurationValue} Value */
/** @typedef {import("../lib/answers").ApplicationSummary} Line */

/** A master that has been silent for longer than this does not count as reached. */
const SILENT_MS = 10_000;

/** Their load changes without an event. */
const WORKERS_EVERY_MS = 5_000;

export function ClusterPage() {
  const now = cluster.value;
  const { found, problem } = usePolled(fetchWorkers, WORKERS_EVERY_MS);
  const workers = found?.workers;
  if (!now) return html`<h1>Cluster</h1><${Panel} title="Masters"><${Empty}>Waiting for the console …<//><//>`;
  const reached = now.masters.filter((one) => one.silent_ms != null && one.silent_ms < SILENT_MS).length;
  const needed = Math.floor(now.masters.length / 2) + 1;
  const pending = [...(applications.value?.values() ?? [])].filter((one) => one.state === "pending");
  return html`
    <h1>Cluster</h1>
    <${Figures}
      of=${[
        {
          label: "Leader",
          value: now.leader ? html`<${Said} of=${now.leader} />` : "none",
          small: true,
          kind: now.leader ? "" : "bad",
          below: `term ${now.term}`,
        },
        {
          label: "Masters that answer",
          value: `${reached} of ${now.masters.length}`,
          kind: reached < needed ? "bad" : reached < now.masters.length ? "warn" : "",
          below: `${needed} ${needed === 1 ? "is" : "are"} a quorum`,
        },
        { label: "Workers", value: showCount(now.workers), kind: now.workers ? "" : "bad" },
        {
          label: "Free slots",
          value: `${showCount(now.free_slots)} of ${showCount(now.slots)}`,
          kind: now.slots && !now.free_slots ? "warn" : "",
        },
        { label: "Applications", value: showCount(now.applications["active"] ?? 0), below: "active" },
        { label: "Version", value: now.version, small: true },
      ]}
    />
    ${
      pending.length
        ? html`<${Panel} title="Waiting applications" note=${showCounted(pending.length, "application")}>
          <${Table} label="Waiting applications" rows=${pending} id=${(/** @type {Line} */ one) => one.app_id} columns=${WAITING} />
        <//>`
        : null
    }
    <${Panel} title="Masters">
      <${Table} label="Masters" rows=${now.masters} id=${(/** @type {Master} */ one) => one.address} columns=${MASTERS} />
    <//>
    <${Outcome} ofCluster=${true} />
    <${Panel} title="Workers" tools=${html`<${AddWorker} local=${found?.local} />`}>
      ${problem ? html`<${ProblemBox} of=${problem} />` : null}
      ${
        workers?.length
          ? html`<${Table} label="Workers" rows=${workers} id=${(/** @type {Worker} */ one) => one.worker_id} columns=${workersOf(found?.local)} />`
          : html`<${Empty}>${workers ? html`No worker is registered. Start one: <code>drivetrain worker</code>.` : "Waiting for the console …"}<//>`
      }
    <//>
    ${may("admin") ? html`<${Configuration} />` : null}
  `;
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<import("../lib/answers").Workers>}
 */
function fetchWorkers(signal) {
  return get(["workers"], {}, signal);
}

/** What the console runs with: what differs from the defaults, for those who may see it. */
function Configuration() {
  const [values, setValues] = useState(/** @type {Value[] | null} */ (null));
  const [all, setAll] = useState(false);
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  useEffect(() => {
    get(["configuration"]).then((found) => setValues(found.values), setProblem);
  }, []);
  const shown = values?.filter((one) => all || one.origin !== "default") ?? [];
  const tools = html`<label class="field"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} /> with defaults</label>`;
  return html`<${Panel} title="Configuration of this console" tools=${tools}>
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    ${
      shown.length
        ? html`<${Table} label="Configuration" rows=${shown} id=${(/** @type {Value} */ one) => one.key} columns=${VALUES} />`
        : html`<${Empty}>${values ? "Every key has its default." : "Waiting for the console …"}<//>`
    }
  <//>`;
}

/** @type {import("../parts/table.js").Column<Value>[]} */
const VALUES = [
  { label: "Key", heads: true, by: (one) => one.key, cell: (one) => html`<code>${one.key}</code>` },
  { label: "Value", cell: (one) => html`<${Said} of=${one.value} class="name mono" title=${one.value} />` },
  {
    label: "Set in",
    by: (one) => one.origin,
    cell: (one) => html`<${Said} of=${one.origin} class="name" title=${one.origin} />`,
  },
  { label: "Meaning", class: "wrap", cell: (one) => one.description },
];

/** @type {import("../parts/table.js").Column<Master>[]} */
const MASTERS = [
  {
    label: "Master",
    heads: true,
    by: (one) => one.address,
    cell: (one) => html`<${Said} of=${one.address} class="mono" />`,
  },
  {
    label: "Role",
    by: (one) => Number(one.leads),
    cell: (one) => (one.leads ? html`<${Badge} of="leads" />` : "follows"),
  },
  { label: "Term", number: true, by: (one) => one.term, cell: (one) => one.term },
  {
    label: "Last message",
    by: (one) => one.silent_ms,
    class: (one) => (one.silent_ms == null || one.silent_ms >= SILENT_MS ? "bad" : ""),
    cell: (one) =>
      one.silent_ms == null ? "never" : one.silent_ms < 2000 ? "just now" : `${showSpan(one.silent_ms)} ago`,
  },
];

/** @type {import("../parts/table.js").Column<Worker>[]} */
const WORKERS = [
  { label: "Worker", heads: true, by: (one) => one.name, cell: (one) => html`<${Said} of=${one.name} class="name" />` },
  { label: "Host", by: (one) => one.host, cell: (one) => html`<${Said} of=${one.host} class="mono" />` },
  {
    label: "Slots in use",
    by: (one) => one.slots - one.free_slots,
    cell: (one) =>
      html`<span class="bar-cell ${one.free_slots ? "" : "full"}"><i style=${{ width: `${one.slots ? (1 - one.free_slots / one.slots) * 100 : 0}%` }}></i></span>${one.slots - one.free_slots} of ${one.slots}`,
  },
  { label: "Processor", number: true, by: (one) => one.cpu, cell: (one) => showShare(one.cpu) },
  {
    label: "Free memory",
    number: true,
    by: (one) => one.memory_free_bytes,
    class: (one) => (one.memory_free_bytes && one.memory_free_bytes < 512 * 2 ** 20 ? "bad" : ""),
    cell: (one) => (one.memory_free_bytes ? showSize(one.memory_free_bytes) : "–"),
  },
  { label: "Registered (UTC)", by: (one) => one.registered_ms, cell: (one) => showClock(one.registered_ms) },
  {
    label: "Processes",
    class: "wrap",
    cell: (one) => (one.launched.length ? html`<${Said} of=${one.launched.join(", ")} class="mono" />` : "none"),
  },
];

/**
 * With a way to end those that can be ended from here.
 * @param {string[] | null | undefined} local
 * @returns {import("../parts/table.js").Column<Worker>[]}
 */
function workersOf(local) {
  if (!local?.length || !may("admin")) return WORKERS;
  return [
    ...WORKERS,
    { label: "", cell: (/** @type {Worker} */ one) => html`<${RemoveWorker} worker=${one.name} local=${local} />` },
  ];
}

/** @type {import("../parts/table.js").Column<Line>[]} */
const WAITING = [
  {
    label: "Application",
    heads: true,
    cell: (one) => html`<a href=${link(["apps", one.app_id])}><${Said} of=${one.app_id} class="name" /></a>`,
  },
  { label: "Priority", cell: (one) => one.priority },
  { label: "Since (UTC)", cell: (one) => showClock(one.submitted_ms) },
  {
    label: "Why",
    class: "wrap",
    cell: (one) => html`<${Said} of=${one.why ?? "its application master is being started"} />`,
  },
];
