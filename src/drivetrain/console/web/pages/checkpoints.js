// @ts-check
// Checkpoints: how old the last one is, how long each fragment took for it, and why tries failed.

import { html } from "../lib/dom.js";
import { showCount, showDay, showSize, showSpan, showTime } from "../lib/figures.js";
import { checkpointAge, job, sinceReport } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Figures } from "../parts/figures.js";
import { Empty, Panel } from "../parts/panel.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/answers").CompletedCheckpoint} Done */
/** @typedef {import("../lib/answers").FailedCheckpoint} Failed */

export function CheckpointsPage() {
  const of = job.value?.checkpoints;
  if (!of) {
    return html`<${Panel} title="Checkpoints"><${Empty}>No checkpoint has been reported yet.<//><//>`;
  }
  const { last } = of;
  return html`
    <${Figures}
      of=${[
        { label: "Last one", value: last ? showSpan(checkpointAge.value) : "none yet", below: last ? "ago" : null },
        { label: "Took", value: showSpan(last?.duration_ms) },
        { label: "Size", value: showSize(last?.size_bytes) },
        {
          label: "As of (UTC)",
          value: showTime(last?.as_of_ms),
          below: showDay(last?.as_of_ms),
        },
        { label: "Completed", value: showCount(of.completed) },
        { label: "Failed", value: showCount(of.failed), kind: of.failed ? "warn" : "" },
        {
          label: "Now",
          value: of.running_ms == null ? "none" : `running for ${showSpan(of.running_ms)}`,
          small: true,
          below: of.is_recovering ? "recovering" : of.running_ms == null ? null : of.phase,
        },
      ]}
    />
    <${Panel} title="How long each fragment took" note=${last ? `checkpoint ${last.txid}; from its start until the fragment was prepared` : null}>
      ${last ? html`<${Timeline} of=${last} />` : html`<${Empty}>No checkpoint has been completed yet.<//>`}
    <//>
    <${Panel} title="Failures" note=${of.failures.length ? "the latest, newest first" : null}>
      ${
        of.failures.length
          ? html`<${Table} label="Failed checkpoints" rows=${[...of.failures].reverse()} id=${(/** @type {Failed} */ one) => `${one.txid} ${one.at_ms}`} columns=${FAILURES(of.now_ms + sinceReport.value)} />`
          : html`<${Empty}>No checkpoint has failed.<//>`
      }
    <//>
  `;
}

/** @param {{of: Done}} props */
function Timeline({ of }) {
  const whole = Math.max(1, of.duration_ms, ...Object.values(of.fragment_ms));
  const rows = Object.entries(of.fragment_ms).sort((one, other) => other[1] - one[1]);
  return html`<ol class="timeline">
    ${[...rows, /** @type {[string, number]} */ (["all committed", of.duration_ms])].map(
      ([id, ms], at) => html`<li key=${id} class=${at === rows.length ? "whole" : ""}>
        <${Said} of=${id} class="name" title=${visible(id)} />
        <span class="track" aria-hidden="true"><i style=${{ width: `${(ms / whole) * 100}%` }}></i></span>
        <span class="when">${showSpan(ms)}</span>
      </li>`,
    )}
  </ol>`;
}

/**
 * @param {number} now_ms
 * @returns {import("../parts/table.js").Column<Failed>[]}
 */
const FAILURES = (now_ms) => [
  { label: "Checkpoint", heads: true, cell: (one) => one.txid },
  { label: "When", cell: (one) => `${showSpan(Math.max(0, now_ms - one.at_ms))} ago` },
  { label: "During", cell: (one) => one.action ?? "–" },
  { label: "Because of", cell: (one) => html`<${Said} of=${one.fragments.join(", ") || "–"} class="name" />` },
  { label: "Reason", class: "wrap", cell: (one) => html`<${Said} of=${one.reason} />` },
];
