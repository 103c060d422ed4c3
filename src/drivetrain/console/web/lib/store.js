// @ts-check
// What the server said last, and what of it is kept for curves.

import { batch, computed, signal } from "./dom.js";
import { momentsOf } from "./history.js";
import { consoleNow } from "./live.js";

/** @typedef {import("./answers").ApplicationSnapshot} Snapshot */
/** @typedef {import("./answers").Job} Job */
/** @typedef {import("./answers").Fragment} Fragment */
/** @typedef {import("./answers").Channel} Channel */

/** The application of this page; null before the first snapshot. */
export const snapshot = signal(/** @type {Snapshot | null} */ (null));
/** Its job as last reported, kept while no application master answers, and when that was by the console's clock. */
export const job = signal(/** @type {Job | null} */ (null));
export const jobAt = signal(/** @type {number | null} */ (null));
/** Whether the figures of the job are those of now. */
export const isFresh = computed(() => snapshot.value?.job != null || isOver.value);
/** Whether the application has an application master of its own: no graph, no fragments, no state of streams. */
export const isCustom = computed(() => snapshot.value?.app_master != null);
export const isOver = computed(() => isOverState(snapshot.value?.application.state ?? ""));
/** How long ago the job was reported: ages on the page grow with it. Nothing grows any more once it is over. */
export const sinceReport = computed(() =>
  jobAt.value == null || isOver.value ? 0 : Math.max(0, consoleNow.value - jobAt.value),
);
/** How old the last checkpoint is; null without one. */
export const checkpointAge = computed(() => {
  const of = job.value?.checkpoints;
  if (!of?.last) return null;
  return Math.max(0, of.now_ms - of.last.started_ms - of.last.duration_ms) + sinceReport.value;
});
/** True when the cluster has no such application. */
export const isGone = signal(false);
/** The graph of the application with coordinates; undefined before it is known, null where there is none. */
export const graph = signal(/** @type {import("./answers").Graph | null | undefined} */ (undefined));

/** @typedef {import("./answers").ApplicationSummary} ApplicationSummary */

/** Applications by id, in no order; null before they are known. */
export const applications = signal(/** @type {Map<string, ApplicationSummary> | null} */ (null));
export const cluster = signal(/** @type {import("./answers").Cluster | null} */ (null));
/** Whether the console shows the runs of one machine, and no cluster. */
export const isOfRuns = computed(() => cluster.value?.shows === "runs");
/** Whether the console reaches a leading master. */
export const connection = signal(/** @type {import("./answers").ConnectionEvent | null} */ (null));

/** Moments kept for curves: 15 minutes of one a second. */
const MOST_MOMENTS = 900;

/**
 * Figures at one moment, by fragment.
 * @typedef {{at: number, figures: Record<string, Record<string, number | null>>}} Moment
 */
export const moments = signal(/** @type {Moment[]} */ ([]));

/**
 * Whether an application in this state does nothing any more.
 * @param {string} state
 */
export function isOverState(state) {
  return ["succeeded", "failed", "killed"].includes(state);
}

/** Forgets everything, before somebody else looks. */
export function forgetAll() {
  batch(() => {
    forget();
    applications.value = null;
    cluster.value = null;
    connection.value = null;
  });
}

/** Forgets an application, before another one is looked at. */
export function forget() {
  batch(() => {
    snapshot.value = null;
    job.value = null;
    jobAt.value = null;
    isGone.value = false;
    moments.value = [];
    graph.value = undefined;
  });
}

/** @param {Snapshot} next */
export function take(next) {
  batch(() => {
    snapshot.value = next;
    isGone.value = false;
    if (!next.job) return;
    job.value = next.job;
    jobAt.value = next.now_ms;
    note(next.now_ms, next.job);
  });
}

/**
 * Time has passed and nothing has changed: curves go on.
 * @param {number} now_ms
 */
export function tick(now_ms) {
  const last = snapshot.peek()?.job;
  if (last) note(now_ms, last);
}

/**
 * @param {number} now_ms
 * @param {Job} of
 */
function note(now_ms, of) {
  const before = moments.peek();
  const at = now_ms / 1000;
  if ((before.at(-1)?.at ?? -1) < at)
    moments.value = [...before.slice(1 - MOST_MOMENTS), { at, figures: figuresOf(of) }];
}

/**
 * What was before the page was opened: curves begin with it.
 * @param {import("./answers").History} history
 */
export function begin(history) {
  const [seen, kept] = [snapshot.peek(), moments.peek()];
  if (!seen?.job) return;
  const first = kept[0]?.at ?? Number.POSITIVE_INFINITY;
  const earlier = momentsOf(history, seen.now_ms - seen.job.now_ms).filter(({ at }) => at < first);
  moments.value = [...earlier, ...kept].slice(-MOST_MOMENTS);
}

/** @param {Job} of */
function figuresOf(of) {
  /** @type {Moment["figures"]} a fragment may be called "__proto__" */
  const figures = Object.create(null);
  for (const one of of.fragments) {
    figures[one.fragment] = {
      rate: one.messages_per_s,
      lag: one.lag_messages,
      delay: one.clock_delay_ms,
      batch: one.batch_ms,
      state: one.figures.state_bytes,
      latency: one.figures.latency_p99_ms,
    };
  }
  return figures;
}

/**
 * The rates at which messages enter channels, by the channels' ids; only known with the graph.
 * @type {import("../vendor/signals.js").ReadonlySignal<Map<string, number | null>>}
 */
export const channelRates = computed(() => {
  const out = new Map(job.value?.processors.map((one) => [one.processor, one.out_per_s]));
  return new Map(graph.value?.channels.map((one) => [one.channel, out.get(one.producer) ?? null]));
});
