// @ts-check
// An application at a glance: the diagnosis first, then figures and curves, then every fragment.

import { html, useMemo, useState } from "../lib/dom.js";
import {
  showClock,
  showCount,
  showCounted,
  showDay,
  showLatency,
  showRate,
  showShare,
  showShort,
  showSize,
  showSpan,
  showTime,
} from "../lib/figures.js";
import { fetchHistory, momentsOf } from "../lib/history.js";
import { usePolled } from "../lib/polled.js";
import { link } from "../lib/router.js";
import { checkpointAge, isCustom, isOfRuns, job, moments, sinceReport, snapshot } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Badge } from "../parts/badge.js";
import { Chart } from "../parts/chart.js";
import { Figures, Facts } from "../parts/figures.js";
import { Findings, Verdict } from "../parts/findings.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/store.js").Job} Job */
/** @typedef {import("../lib/store.js").Snapshot} Snapshot */
/** @typedef {import("../lib/store.js").Fragment} Fragment */

/** More curves in one chart than this cannot be told apart. */
const MOST_CURVES = 6;

export function ApplicationPage() {
  const now = /** @type {Snapshot} */ (snapshot.value);
  const { diagnosis } = now;
  return html`
    <${Verdict} sentence=${diagnosis.in_short} findings=${diagnosis.findings} />
    <${Findings} of=${diagnosis.findings} />
    ${
      job.value
        ? isCustom.value
          ? html`<${Ends} of=${job.value} />`
          : html`<${Running} of=${job.value} now=${now} />`
        : html`<${Panel} title="Progress"><${Empty}>
        Nothing has been reported yet.<//>
      <//>`
    }
    <${Origin} of=${now} />
  `;
}

/** @param {{of: Job, now: Snapshot}} props */
function Running({ of, now }) {
  return html`
    <${Glance} of=${of} now=${now} />
    <${Curves} app=${now.application.app_id} />
    <${Fragments} of=${of} app=${now.application.app_id} />
    <${Ends} of=${of} />
  `;
}

/** @param {{of: Job, now: Snapshot}} props */
function Glance({ of, now }) {
  const subscribers = new Set(of.channels.map((one) => one.subscriber));
  const sources = of.fragments.filter((one) => !subscribers.has(one.fragment));
  const lags = of.fragments.map((one) => one.lag_messages).filter((lag) => lag != null);
  const late = sum(of.processors.map((one) => one.late));
  const dead = sum(of.processors.map((one) => one.dead_letters));
  const starts = sum(of.fragments.map((one) => one.attempt - 1)) + Math.max(0, now.application.epoch - 1);
  const last = of.checkpoints?.last;
  const delay = Math.max(-1, ...of.fragments.map((one) => one.clock_delay_ms ?? -1));
  return html`<${Figures}
    of=${[
      {
        label: "Input",
        value: showRate(sum(sources.map((one) => one.messages_per_s))),
        below: `${showShort(sum(sources.map((one) => one.messages)))} so far`,
      },
      of.fraction != null && { label: "Input read", value: showShare(of.fraction) },
      { label: "Waiting", value: lags.length ? showCount(sum(lags)) : "–" },
      {
        label: "Clock (UTC)",
        value: showTime(of.clock_ms),
        below: showDay(of.clock_ms),
      },
      { label: "Clock delay", value: delay < 0 ? "–" : showSpan(delay) },
      { label: "Longest batch", value: showSpan(Math.max(0, ...of.fragments.map((one) => one.batch_ms))) },
      of.checkpoints && {
        label: "Checkpoint",
        value: last
          ? showSpan(checkpointAge.value)
          : "none yet",
        below: last ? `ago, took ${showSpan(last.duration_ms)}` : null,
        kind: of.checkpoints.failures.length ? "warn" : "",
      },
      { label: "Restarts", value: showCount(starts), kind: starts ? "warn" : "" },
      { label: "Late", value: showCount(late), kind: late ? "warn" : "" },
      { label: "Dead letters", value: showCount(dead), kind: dead ? "warn" : "" },
      of.lost > 0 && { label: "Lost at sources", value: showCount(of.lost), kind: "bad" },
    ]}
  />`;
}

const MINUTE_MS = 60_000;
/** Spans of curves; those of the last minutes are live. */
const SPANS = /** @type {const} */ ([
  ["15 minutes", 15 * MINUTE_MS],
  ["6 hours", 360 * MINUTE_MS],
  ["26 hours", 1560 * MINUTE_MS],
  ["7 days", 10_080 * MINUTE_MS],
  ["30 days", 43_200 * MINUTE_MS],
]);
const MOST_POINTS = 600;

/** @param {{app: string}} props */
function Curves({ app }) {
  const [span_ms, setSpan] = useState(/** @type {number} */ (SPANS[0][1]));
  return html`
    <div class="spans">
      <label class="field">
        Curves of the last
        <select value=${span_ms} onChange=${(/** @type {any} */ event) => setSpan(Number(event.target.value))}>
          ${SPANS.map(([name, ms]) => html`<option key=${ms} value=${ms}>${name}</option>`)}
        </select>
      </label>
    </div>
    ${span_ms === SPANS[0][1] ? html`<${Charts} app=${app} kept=${moments.value} />` : html`<${Earlier} key=${span_ms} app=${app} span_ms=${span_ms} />`}
  `;
}

/** @param {{app: string, span_ms: number}} props */
function Earlier({ app, span_ms }) {
  const ask = (/** @type {AbortSignal} */ signal) => {
    const now_ms = job.peek()?.now_ms ?? Date.now();
    return fetchHistory(app, signal, { since_ms: now_ms - span_ms, points: MOST_POINTS });
  };
  const { found, problem } = usePolled(ask, MINUTE_MS, `${app} ${span_ms}`);
  const kept = useMemo(() => (found ? momentsOf(found, 0) : []), [found]);
  return html`${problem ? html`<${ProblemBox} of=${problem} />` : null}<${Charts} app=${app} kept=${kept} />`;
}

/** @param {{app: string, kept: import("../lib/store.js").Moment[]}} props */
function Charts({ app, kept }) {
  const times = useMemo(() => kept.map((one) => one.at), [kept]);
  const show = {
    count: (/** @type {number | null} */ value) => (value == null ? "–" : showShort(value)),
    span: (/** @type {number | null} */ value) => (value == null ? "–" : showSpan(value)),
  };
  const of = (/** @type {string} */ figure) => curvesOf(kept, figure);
  const note = "the slowest or largest fragments";
  const [latency, state] = [of("latency"), of("state")];
  return html`<div class="curves ${latency.length && state.length ? "six" : ""}" key=${app}>
    <${Chart} title="Messages per second" times=${times} curves=${of("rate")} show=${show.count} />
    <${Chart} title="Waiting messages" times=${times} curves=${of("lag")} show=${show.count} />
    <${Chart} title="Clock delay" times=${times} curves=${of("delay")} show=${show.span} />
    <${Chart} title="Duration of batches" times=${times} curves=${of("batch")} show=${show.span} />
    ${latency.length ? html`<${Chart} title="Latency" note="99th percentile" times=${times} curves=${latency} show=${show.span} />` : null}
    ${state.length ? html`<${Chart} title="Size of state" times=${times} curves=${state} show=${showSize} />` : null}
    <span class="hidden-text">Curves show ${note}.</span>
  </div>`;
}

/**
 * The curves of the fragments with the largest values.
 * @param {import("../lib/store.js").Moment[]} kept
 * @param {string} figure
 */
function curvesOf(kept, figure) {
  const last = kept.at(-1)?.figures ?? {};
  // Which fragments have the largest values can be told from some of the moments.
  const step = Math.ceil(kept.length / 30);
  const some = kept.filter((_, at) => (kept.length - 1 - at) % step === 0);
  /** @type {Map<string, number>} */
  const largest = new Map();
  for (const { figures } of some) {
    for (const id in figures) {
      const value = figures[id]?.[figure];
      if (value != null) largest.set(id, Math.max(largest.get(id) ?? 0, value));
    }
  }
  const shown = [...largest.keys()]
    .filter((id) => Object.hasOwn(last, id))
    .sort((one, other) => (largest.get(other) ?? 0) - (largest.get(one) ?? 0))
    .slice(0, MOST_CURVES)
    .sort();
  return shown.map((id) => ({ label: id, values: kept.map(({ figures }) => figures[id]?.[figure] ?? null) }));
}

/** @param {{of: Job, app: string}} props */
function Fragments({ of, app }) {
  return html`<${Panel} title="Fragments" note=${showCounted(of.fragments.length, "fragment")}>
    <${Table}
      label="Fragments"
      rows=${of.fragments}
      id=${(/** @type {Fragment} */ one) => one.fragment}
      columns=${columns(app)}
    />
  <//>`;
}

/**
 * @param {string} app
 * @returns {import("../parts/table.js").Column<Fragment>[]}
 */
function columns(app) {
  return [
    {
      label: "Fragment",
      heads: true,
      by: (one) => one.fragment,
      cell: (one) =>
        html`<a href=${link(["apps", app, "graph"], { at: one.fragment })}><${Said} of=${one.fragment} class="name" title=${visible(one.fragment)} /></a>`,
    },
    { label: "State", by: (one) => one.state, cell: (one) => html`<${Badge} of=${one.state} />` },
    { label: "Messages/s", number: true, by: (one) => one.messages_per_s, cell: (one) => showRate(one.messages_per_s) },
    { label: "Messages", number: true, by: (one) => one.messages, cell: (one) => showCount(one.messages) },
    {
      label: "Waiting",
      title: "Messages that wait for this fragment",
      number: true,
      by: (one) => one.lag_messages,
      cell: (one) => showCount(one.lag_messages),
    },
    {
      label: "Last batch",
      number: true,
      by: (one) => one.batch_ms,
      cell: (one) => (one.batch_id < 0 ? "–" : showSpan(one.batch_ms)),
    },
    {
      label: "Latency",
      title: "From a batch's newest timestamp until the outputs had the batch: median and 99th percentile",
      number: true,
      by: (one) => one.figures.latency_p99_ms,
      cell: (one) => showLatency(one.figures),
    },
    {
      label: "State",
      title: "Size of its state",
      number: true,
      by: (one) => one.figures.state_bytes,
      cell: (one) => showSize(one.figures.state_bytes),
    },
    { label: "Clock (UTC)", by: (one) => one.clock_ms, cell: (one) => showClock(one.clock_ms) },
    {
      label: "Held up",
      title: "For how long it has held up the application's clock, and what it waits for",
      number: true,
      by: (one) => one.stalled_ms,
      class: (one) => (one.stalled_ms ? "warn" : ""),
      cell: (one) => (one.stalled_ms ? showSpan(one.stalled_ms) : "–"),
    },
    {
      label: "Blocked by",
      by: (one) => one.blocked_by,
      class: (one) => (one.blocked_by ? "bad" : ""),
      cell: (one) => (one.blocked_by ? html`<${Said} of=${one.blocked_by} class="name" />` : "–"),
    },
    {
      label: "Attempt",
      number: true,
      by: (one) => one.attempt,
      class: (one) => (one.attempt > 1 ? "warn" : ""),
      cell: (one) => one.attempt,
    },
    { label: "Executor", by: (one) => one.executor, cell: (one) => html`<${Said} of=${one.executor ?? "–"} />` },
  ];
}

/** @param {{of: Job}} props */
function Ends({ of }) {
  const counters = Object.entries(of.accumulators).map(([name, value]) => ({ name, value }));
  return html`
    ${of.printed ? html`<${Panel} title="What it printed" inside><pre class="trace" tabindex="0">${visible(of.printed, { lines: true })}</pre><//>` : null}
    ${
      of.outputs.length
        ? html`<${Panel} title="Outputs">
          <${Table}
            label="Outputs"
            rows=${of.outputs}
            id=${(/** @type {any} */ one) => one.processor}
            columns=${[
              {
                label: "Sink",
                heads: true,
                by: (/** @type {any} */ one) => one.processor,
                cell: (/** @type {any} */ one) => html`<${Said} of=${one.processor} class="name" />`,
              },
              {
                label: "Messages",
                number: true,
                by: (/** @type {any} */ one) => one.messages,
                cell: (/** @type {any} */ one) => showCount(one.messages),
              },
              { label: "Where", class: "wrap", cell: (/** @type {any} */ one) => html`<${Said} of=${one.target} />` },
              { label: "Guarantee", cell: (/** @type {any} */ one) => html`<${Said} of=${one.guarantee} />` },
            ]}
          />
        <//>`
        : null
    }
    ${
      counters.length
        ? html`<${Panel} title="Accumulators">
          <${Table}
            label="Accumulators"
            rows=${counters}
            id=${(/** @type {any} */ one) => one.name}
            columns=${[
              {
                label: "Accumulator",
                heads: true,
                by: (/** @type {any} */ one) => one.name,
                cell: (/** @type {any} */ one) => html`<${Said} of=${one.name} />`,
              },
              {
                label: "Value",
                number: true,
                by: (/** @type {any} */ one) => one.value,
                cell: (/** @type {any} */ one) => one.value.toLocaleString("en", { maximumSignificantDigits: 6 }),
              },
            ]}
          />
        <//>`
        : null
    }
  `;
}

/** @param {{of: Snapshot}} props */
function Origin({ of }) {
  const { application: one, job: now } = of;
  const ofRuns = isOfRuns.value;
  return html`<${Panel} title="About" inside>
    <${Facts}
      of=${[
        ["Name", html`<${Said} of=${one.name} />`],
        ["Id", html`<${Said} of=${one.app_id} class="mono" />`],
        of.app_master && ["Kind", html`custom: it has an application master of its own, <${Said} of=${of.app_master} class="mono" />`],
        one.file && ["File", html`<${Said} of=${one.file} class="mono" />`],
        [ofRuns ? "Started" : "Submitted", `${showClock(one.submitted_ms)} UTC`],
        one.ended_ms != null && ["Ended", `${showClock(one.ended_ms)} UTC`],
        now && ["Runs for", showSpan(Math.max(0, now.now_ms - now.started_ms) + sinceReport.value)],
        !ofRuns && ["Application master", one.epoch ? `number ${one.epoch}` : "none yet"],
        ["On worker", one.worker && html`<${Said} of=${one.worker} />`],
        !ofRuns && ["Priority", one.priority],
        ofRuns && now && ["Process", now.executors.map((each) => `${each.pid} on ${visible(each.host ?? "")}`).join(", ")],
        now &&
          now.life > 1 && [
            "Life of its state",
            `${now.life}${now.replay_from_ms == null ? "" : `, replayed from ${showClock(now.replay_from_ms)} UTC`}`,
          ],
        now && now.change && ["Change", html`<${Said} of=${now.change} />`],
        one.why && ["Why", html`<${Said} of=${one.why} />`],
      ]}
    />
  <//>`;
}

/** @param {(number | null)[]} values */
function sum(values) {
  return values.reduce((/** @type {number} */ total, value) => total + (value ?? 0), 0);
}
