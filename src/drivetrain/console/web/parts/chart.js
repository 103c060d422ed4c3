// @ts-check
// Curves over time, drawn by uPlot with the colours of the theme. What they show last is also there as text.

import uPlot from "../vendor/uplot.js";
import { html, useEffect, useLayoutEffect, useRef } from "../lib/dom.js";
import { showSpan } from "../lib/figures.js";
import { theme } from "../lib/theme.js";
import { visible } from "../lib/text.js";

/** Marks that are further apart have their day. */
const LONG_S = 3 * 3600;

/** @typedef {{label: string, values: (number | null)[]}} Curve */

/**
 * @param {{title: string, note?: string, times: number[], curves: Curve[], show: (value: number | null) => string}} props
 * `times` are seconds since the epoch; `show` prints a value.
 */
export function Chart({ title, note, times, curves, show }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const shape = `${theme.value} ${curves.map((one) => one.label).join("\n")}`;
  useLayoutEffect(() => {
    if (!place.current) return undefined;
    plot.current = made(place.current, curves, times, show);
    const watcher = new ResizeObserver(([entry]) => {
      if (entry) plot.current?.setSize({ width: Math.floor(entry.contentRect.width), height: 140 });
    });
    watcher.observe(place.current);
    return () => {
      watcher.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData([times, ...curves.map((one) => one.values)]), [times, curves]);
  const last = curves.map((one) => `${visible(one.label)} ${show(one.values.at(-1) ?? null)}`).join(", ");
  const lasted_ms = ((times.at(-1) ?? 0) - (times[0] ?? 0)) * 1000;
  return html`<figure class="panel chart" role="group" aria-label=${title}>
    <header><h2>${title}</h2>${note ? html`<span class="note">${note}</span>` : null}</header>
    <div class="plot" ref=${place} role="img" aria-label="${title} of the last ${showSpan(lasted_ms)}; now ${last || "nothing yet"}"></div>
    <ul class="keys" aria-hidden="true">
      ${curves.map(
        (one, number) => html`<li key=${one.label} class="curve-${(number % 6) + 1}">
          <bdi class="name">${visible(one.label)}</bdi> ${show(one.values.at(-1) ?? null)}
        </li>`,
      )}
    </ul>
  </figure>`;
}

/**
 * @param {HTMLElement} place @param {Curve[]} curves @param {number[]} times
 * @param {(value: number | null) => string} show
 */
function made(place, curves, times, show) {
  const style = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: colour("--ink-3"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    font: `11px ${style.fontFamily || "sans-serif"}`,
  };
  const options = {
    width: Math.max(120, place.clientWidth - 16),
    height: 140,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    padding: [8, 8, 0, 0],
    scales: {
      x: { time: true },
      y: { range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => span(low, high) },
    },
    axes: [
      { ...axis, size: 24, space: 70, values: (/** @type {any} */ _, /** @type {number[]} */ at) => moments(at) },
      { ...axis, size: 62, space: 30, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map(show) },
    ],
    series: [
      {},
      ...curves.map((one, number) => ({
        label: one.label,
        stroke: colour(`--curve-${(number % 6) + 1}`),
        width: 1.5,
        points: { show: false },
        spanGaps: false,
      })),
    ],
  };
  return new uPlot(options, [times, ...curves.map((one) => one.values)], place);
}

/**
 * From zero, with some space above, also for a curve that is zero everywhere.
 * @param {number} low
 * @param {number} high
 */
function span(low, high) {
  return [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : 1];
}

/**
 * Marks of time: with the day where they are hours apart.
 * @param {number[]} at seconds since the epoch
 */
function moments(at) {
  const isLong = (at[1] ?? 0) - (at[0] ?? 0) >= LONG_S;
  return at.map((seconds) => {
    const text = new Date(seconds * 1000).toISOString();
    return isLong ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(11, 19);
  });
}
