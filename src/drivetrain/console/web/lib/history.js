// @ts-check
// Figures over time as the console recorded them: for curves, and for means of batches.

import { get } from "./api.js";

/** @typedef {import("./answers").History} History */
/** @typedef {import("./answers").FragmentHistory} Columns */
/** @typedef {import("./answers").BatchTotals} Totals */
/** @typedef {import("./answers").Phases} Phases */

/**
 * The history of an application, of the last 15 minutes if no span is given; throws `Problem`.
 * @param {string} app
 * @param {AbortSignal} [signal]
 * @param {{since_ms?: number, points?: number}} [span]
 * @returns {Promise<History>}
 */
export function fetchHistory(app, signal, span = {}) {
  return get(["applications", app, "history"], span, signal);
}

/**
 * Moments for curves; `ahead_ms` is how far the console's clock is ahead of the application master's.
 * @param {History} of
 * @param {number} ahead_ms
 * @returns {import("./store.js").Moment[]}
 */
export function momentsOf(of, ahead_ms) {
  return of.at_ms.map((at_ms, number) => {
    /** @type {Record<string, Record<string, number | null>>} a fragment may be called "__proto__" */
    const figures = Object.create(null);
    for (const [id, columns] of Object.entries(of.fragments)) {
      if (columns.attempt[number] == null) continue;
      figures[id] = {
        rate: rateAt(of.at_ms, columns.messages, number),
        lag: columns.lag_messages[number] ?? null,
        delay: columns.clock_delay_ms[number] ?? null,
        batch: columns.batch_ms[number] ?? null,
        state: columns.state_bytes[number] ?? null,
        latency: columns.latency_p99_ms[number] ?? null,
      };
    }
    return { at: (at_ms + ahead_ms) / 1000, figures };
  });
}

/**
 * How fast a sum has grown since the moment before; null at the first one.
 * @param {number[]} at_ms
 * @param {(number | null)[]} sums
 * @param {number} number
 */
function rateAt(at_ms, sums, number) {
  const [before, now] = [sums[number - 1], sums[number]];
  const lasted_ms = (at_ms[number] ?? 0) - (at_ms[number - 1] ?? 0);
  return before == null || now == null || now < before ? null : ((now - before) * 1000) / lasted_ms;
}

/**
 * The mean of the batches since the history of a fragment begins; null if there was none.
 * @param {Columns | undefined} of
 * @param {Totals} now
 * @returns {{batches: number, phases: Phases} | null}
 */
export function meanSince(of, now) {
  const first = of ? of.batches.findIndex((count) => count != null) : -1;
  const batches = now.batches - (of?.batches[first] ?? now.batches);
  if (!of || batches <= 0) return null;
  const phases = Object.entries(now.phases).map(([name, ms]) => [
    name,
    (ms - (of.phases[/** @type {keyof Phases} */ (name)][first] ?? 0)) / batches,
  ]);
  return { batches, phases: Object.fromEntries(phases) };
}
