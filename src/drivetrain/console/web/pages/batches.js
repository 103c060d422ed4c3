// @ts-check
// Batches: where the time of each fragment's batches goes, of the last one and in the mean.

import { html } from "../lib/dom.js";
import { showCount, showCounted, showSpan } from "../lib/figures.js";
import { fetchHistory, meanSince } from "../lib/history.js";
import { usePolled } from "../lib/polled.js";
import { job, snapshot } from "../lib/store.js";
import { Said, capitalized, visible } from "../lib/text.js";
import { Empty, Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/store.js").Fragment} Fragment */
/** @typedef {import("../lib/answers").Phases} Phases */
/** @typedef {import("../lib/answers").Batch} Batch */
/** @typedef {{of: Fragment, batch: Batch}} Row */

/** How often the beginning of the mean moves on. */
const EVERY_MS = 60_000;

/** @type {{name: keyof Phases, id: string, label: string, title: string}[]} */
const PHASES = [
  { name: "waiting_ms", id: "waiting", label: "waiting", title: "waiting for room in a channel" },
  { name: "source_ms", id: "source", label: "source", title: "looking for new input" },
  { name: "planning_ms", id: "planning", label: "planning", title: "making Spark's plans" },
  { name: "computing_ms", id: "computing", label: "computing", title: "Spark's jobs, with Python functions and state" },
  { name: "sink_ms", id: "sink", label: "sinks", title: "writing computed results to sinks" },
  { name: "channel_ms", id: "channel", label: "channels", title: "appending to channels" },
  { name: "log_ms", id: "log", label: "logs", title: "Spark's logs of offsets and commits" },
  { name: "other_ms", id: "other", label: "other", title: "the rest" },
];

export function BatchesPage() {
  const app = snapshot.value?.application.app_id ?? "";
  const { found: history } = usePolled((signal) => fetchHistory(app, signal), EVERY_MS, app);
  const kept = new Map(Object.entries(history?.fragments ?? {})); // a fragment may be called "__proto__"
  const rows = (job.value?.fragments ?? []).flatMap((of) =>
    of.figures.last_batch ? [{ of, batch: of.figures.last_batch }] : [],
  );
  if (!rows.length) return html`<${Panel} title="Batches"><${Empty}>No batch has been reported yet.<//><//>`;
  return html`
    <ul class="legend" aria-label="Legend">
      ${PHASES.map(({ id, label, title }) => html`<li key=${id} class="phase-${id}" title=${title}><i></i>${label}</li>`)}
    </ul>
    <${Panel} title="Where the time goes" note="upper bar: the last batch; lower bar: the mean of up to 15 minutes">
      <ol class="batches">
        ${rows.map(
          ({ of, batch }) =>
            html`<${Bars} key=${of.fragment} of=${of} batch=${batch} mean=${meanSince(kept.get(of.fragment), of.figures.totals)} />`,
        )}
      </ol>
    <//>
    <${Panel} title="The last batches in numbers" note="Python and state are sums over tasks that run at the same time">
      <${Table} label="The last batches in numbers" rows=${rows} id=${(/** @type {Row} */ one) => one.of.fragment} columns=${COLUMNS} />
    <//>
  `;
}

/** @param {{of: Fragment, batch: Batch, mean: {batches: number, phases: Phases} | null}} props */
function Bars({ of, batch, mean }) {
  const took_ms = together(batch.phases);
  const longest = longestOf(batch);
  const { trigger_ms } = of.figures;
  return html`<li class="batch-row">
    <span class="who">
      <${Said} of=${of.fragment} class="name" title=${visible(of.fragment)} />
      ${longest ? html`<span class="note">mostly ${longest.label}: ${showSpan(longest.ms)}${longest.sink ? html`, of which ${showSpan(longest.sink.ms)} in <${Said} of=${longest.sink.id} class="name" />` : null}</span>` : null}
      ${trigger_ms != null && took_ms > trigger_ms ? html`<span class="note warn-text">longer than its trigger of ${showSpan(trigger_ms)}</span>` : null}
    </span>
    <span class="flames">
      <${Flame} of=${batch.phases} label=${`Batch ${batch.batch_id}`} />
      ${mean ? html`<${Flame} of=${mean.phases} label=${`Mean of ${showCounted(mean.batches, "batch", "batches")}`} thin />` : null}
    </span>
    <span class="when">${showSpan(took_ms)}${mean ? html`<br /><span class="note">${showSpan(together(mean.phases))}</span>` : null}</span>
  </li>`;
}

/** @param {{of: Phases, label: string, thin?: boolean}} props */
function Flame({ of, label, thin = false }) {
  const whole = together(of);
  const parts = PHASES.filter(({ name }) => of[name] > 0);
  const said = parts.map(({ name, label: phase }) => `${phase} ${showSpan(of[name])}`).join(", ");
  const title = `${label}, ${showSpan(whole)}: ${said}`;
  return html`<span class="flame ${thin ? "thin" : ""}" role="img" aria-label=${title} title=${title}>
    ${parts.map(({ name, id }) => html`<i key=${id} class="phase-${id}" style=${{ width: `${(of[name] / whole) * 100}%` }}></i>`)}
  </span>`;
}

/** @param {Phases} of */
function together(of) {
  return PHASES.reduce((total, { name }) => total + of[name], 0);
}

/**
 * The longest phase of a batch, and the longest sink if it is that of the sinks.
 * @param {Batch} of
 */
function longestOf(of) {
  const phase = PHASES.reduce((one, other) => (of.phases[other.name] > of.phases[one.name] ? other : one));
  const ms = of.phases[phase.name];
  if (!ms) return null;
  const [sink] = Object.entries(of.sinks_ms).sort((one, other) => other[1] - one[1]);
  return { label: phase.label, ms, sink: phase.id === "sink" && sink ? { id: sink[0], ms: sink[1] } : null };
}

/** @type {import("../parts/table.js").Column<Row>[]} */
const COLUMNS = [
  {
    label: "Fragment",
    heads: true,
    by: ({ of }) => of.fragment,
    cell: ({ of }) => html`<${Said} of=${of.fragment} class="name" title=${visible(of.fragment)} />`,
  },
  { label: "Batch", number: true, by: ({ batch }) => batch.batch_id, cell: ({ batch }) => batch.batch_id },
  {
    label: "Messages",
    number: true,
    by: ({ batch }) => batch.messages,
    cell: ({ batch }) => showCount(batch.messages),
  },
  {
    label: "Took",
    number: true,
    by: ({ batch }) => together(batch.phases),
    cell: ({ batch }) => showSpan(together(batch.phases)),
  },
  ...PHASES.map(({ name, label, title }) => ({
    label: capitalized(label),
    title,
    number: true,
    by: (/** @type {Row} */ { batch }) => batch.phases[name],
    cell: (/** @type {Row} */ { batch }) => showSpan(batch.phases[name]),
  })),
  {
    label: "Python",
    title: "In Python functions and Tasks, with the conversion of their messages",
    number: true,
    by: ({ batch }) => batch.python_ms,
    cell: ({ batch }) =>
      batch.python_tasks ? `${showSpan(batch.python_ms)} in ${showCounted(batch.python_tasks, "task")}` : "–",
  },
  {
    label: "State",
    title: "Reading, changing and storing the state",
    number: true,
    by: ({ batch }) => batch.state_ms,
    cell: ({ batch }) => (batch.state_ms ? showSpan(batch.state_ms) : "–"),
  },
];
