// @ts-check
// Clocks on one time axis: who is behind, and what holds the application's clock.

import { html } from "../lib/dom.js";
import { isEnd, showClock, showDay, showSpan, showTime } from "../lib/figures.js";
import { job } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Figures } from "../parts/figures.js";
import { Empty, Panel } from "../parts/panel.js";

/** @typedef {{id: string, kind: string, clock: number | null, delay: number | null, holds: boolean, why: string | null, silent: number}} Row */

export function ClocksPage() {
  const of = job.value;
  if (!of) return html`<${Panel} title="Clocks"><${Empty}>No application master has reported anything yet.<//><//>`;
  const fragments = of.fragments.map((one) => one.clock_ms).filter((clock) => clock != null);
  const least = fragments.length ? Math.min(.../** @type {number[]} */ (fragments)) : null;
  const rows = /** @type {Row[]} */ ([
    ...of.fragments.map((one) => ({
      id: one.fragment,
      kind: "fragment",
      clock: one.clock_ms,
      delay: one.clock_delay_ms,
      holds: one.clock_ms != null && one.clock_ms === least && !isEnd(least),
      why: one.stalled_ms
        ? `has not moved for ${showSpan(one.stalled_ms)}${one.waiting_for ? `: waits for ${one.waiting_for}` : ""}`
        : null,
      silent: one.silent_partitions,
    })),
    ...of.channels.map((one) => ({
      id: `${one.producer} → ${one.subscriber}`,
      kind: "channel",
      clock: one.clock_ms,
      delay: null,
      holds: false,
      why: null,
      silent: 0,
    })),
  ]).sort(
    (one, other) => (one.clock ?? -Infinity) - (other.clock ?? -Infinity) || Number(other.holds) - Number(one.holds),
  );
  const holders = rows.filter((one) => one.holds);
  return html`
    <${Figures}
      of=${[
        {
          label: "Clock of the application (UTC)",
          value: showTime(of.clock_ms),
          below: showDay(of.clock_ms),
        },
        {
          label: "Held by",
          value: holders.length ? html`<${Said} of=${holders[0]?.id} />` : "–",
          below: holders.length > 1 ? `and ${holders.length - 1} more at the same time` : null,
        },
        { label: "Earliest to latest clock", value: showSpan(spread(rows)) },
      ]}
    />
    <${Panel} title="Clocks" note="earliest first; the dot is the clock, the line the newest message">
      ${rows.length ? html`<${Axis} rows=${rows} />` : html`<${Empty}>No fragment has a clock yet.<//>`}
    <//>
  `;
}

/** @param {Row[]} rows */
function spread(rows) {
  const known = finite(rows);
  return known.length ? Math.max(...known) - Math.min(...known) : null;
}

/** @param {Row[]} rows */
function finite(rows) {
  return /** @type {number[]} */ (rows.map((one) => one.clock).filter((clock) => clock != null && !isEnd(clock)));
}

/** @param {{rows: Row[]}} props */
function Axis({ rows }) {
  const ahead = rows.map((one) => (one.clock == null || isEnd(one.clock) ? null : one.clock + (one.delay ?? 0)));
  const known = [...finite(rows), .../** @type {number[]} */ (ahead.filter((end) => end != null))];
  const first = known.length ? Math.min(...known) : 0;
  const last = known.length ? Math.max(...known, first + 1) : 1;
  const at = (/** @type {number} */ ms) =>
    `${(Math.min(1, Math.max(0, (ms - first) / (last - first))) * 100).toFixed(3)}%`;
  return html`<div class="clocks">
    <div class="clock-row scale" aria-hidden="true">
      <span></span>
      <span class="track"><span>${showClock(first)}</span><span>${showClock(last)}</span></span>
      <span></span>
    </div>
    <ol>
      ${rows.map(
        (one) => html`<li key=${`${one.kind} ${one.id}`} class="clock-row ${one.kind} ${one.holds ? "holds" : ""}">
          <span class="who"><${Said} of=${one.id} class="name" title=${visible(one.id)} />${one.holds ? html` <span class="badge warn">holds the clock</span>` : null}
            ${one.why ? html`<span class="note">${visible(one.why)}</span>` : null}
            ${one.silent ? html`<span class="note">${one.silent} silent source ${one.silent === 1 ? "partition is" : "partitions are"} ignored</span>` : null}</span>
          <span class="track" aria-hidden="true">
            ${
              one.clock == null || isEnd(one.clock)
                ? null
                : html`${one.delay ? html`<i class="ahead" style=${{ left: at(one.clock), right: `calc(100% - ${at(one.clock + one.delay)})` }}></i>` : null}
                  <i class="dot" style=${{ left: at(one.clock) }}></i>`
            }
          </span>
          <span class="when">${showClock(one.clock)}</span>
        </li>`,
      )}
    </ol>
  </div>`;
}
