// @ts-check
// Channels: what waits in each, who does not read it, and what was lost and repaired.

import { html } from "../lib/dom.js";
import { showClock, showCount, showRate, showSize, showSpan } from "../lib/figures.js";
import { channelRates, job } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Empty, Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/store.js").Channel} Channel */

export function ChannelsPage() {
  const channels = job.value?.channels ?? [];
  return html`<${Panel} title="Channels" note=${channels.length ? "lag is what the subscriber has not committed yet" : null}>
    ${
      channels.length
        ? html`<${Table} label="Channels" rows=${channels} id=${(/** @type {Channel} */ one) => one.channel} columns=${COLUMNS} />`
        : html`<${Empty}>This application has no channels: its fragments do not depend on each other.<//>`
    }
  <//>`;
}

/** @type {import("../parts/table.js").Column<Channel>[]} */
const COLUMNS = [
  {
    label: "Channel",
    heads: true,
    by: (one) => one.producer,
    cell: (one) =>
      html`<${Said} of=${one.producer} class="name" title=${visible(one.producer)} /> → <${Said} of=${one.subscriber} class="name" title=${visible(one.subscriber)} />`,
  },
  {
    label: "Enters",
    number: true,
    by: (one) => channelRates.value.get(one.channel),
    cell: (one) => showRate(channelRates.value.get(one.channel)),
  },
  { label: "Lag", number: true, by: (one) => one.lag_messages, cell: (one) => showCount(one.lag_messages) },
  { label: "Lag in bytes", number: true, by: (one) => one.lag_bytes, cell: (one) => showSize(one.lag_bytes) },
  {
    label: "Behind",
    title: "Lag in event time",
    number: true,
    by: (one) => one.lag_ms,
    cell: (one) => showSpan(one.lag_ms),
  },
  {
    label: "Window",
    title: "How much of the window is unacknowledged; the producer waits when it is full",
    by: filled,
    cell: (one) => window_(one),
  },
  {
    label: "Blocked",
    title: "For how long the producer has been waiting for the subscriber",
    number: true,
    by: (one) => one.blocked_ms,
    class: (one) => (one.blocked_ms ? "bad" : ""),
    cell: (one) => (one.blocked_ms ? showSpan(one.blocked_ms) : "–"),
  },
  {
    label: "Losses",
    title: "Lost entries and segments, and how many were repaired",
    number: true,
    by: (one) => one.losses,
    class: (one) => (one.losses > one.replays ? "bad" : one.losses ? "warn" : ""),
    cell: (one) => (one.losses ? `${showCount(one.losses)}, ${showCount(one.replays)} repaired` : "–"),
  },
  { label: "On disk", number: true, by: (one) => one.kept_bytes, cell: (one) => showSize(one.kept_bytes) },
  { label: "Clock (UTC)", by: (one) => one.clock_ms, cell: (one) => showClock(one.clock_ms) },
];

/**
 * How full the window is, 0 to 1.
 * @param {Channel} one
 */
function filled(one) {
  const messages = one.window_messages ? one.unacknowledged_messages / one.window_messages : 0;
  const bytes = one.window_bytes ? one.unacknowledged_bytes / one.window_bytes : 0;
  return Math.min(1, Math.max(messages, bytes));
}

/** @param {Channel} one */
function window_(one) {
  const share = filled(one);
  const title = `${showCount(one.unacknowledged_messages)} of ${showCount(one.window_messages)} messages, ${showSize(one.unacknowledged_bytes)} of ${showSize(one.window_bytes)} unacknowledged`;
  return html`<span title=${title}><span class="bar-cell ${one.blocked_ms ? "full" : ""}"><i style=${{ width: `${share * 100}%` }}></i></span>${Math.round(share * 100)} %</span>`;
}
