// @ts-check
// Two versions of a graph in one picture: what is new, gone, changed and kept. Each has a colour, a sign, a word and a
// border of its own, so that nobody needs to tell colours apart.

import { html } from "../lib/dom.js";
import { Said, visible } from "../lib/text.js";
import { GraphFrame, spot } from "./graph_frame.js";

/** @typedef {import("../lib/answers").ComparedGraph} Graph */

/** @type {Record<string, string>} */
const SIGNS = { new: "+", gone: "−", changed: "~", refused: "!" };

const ORDER = ["new", "gone", "changed", "refused", "kept"];

/**
 * `at` is the processor that is brought into view.
 * @param {{graph: Graph, at?: string | null, label: string}} props
 */
export function ComparedView({ graph, at, label }) {
  const shown = graph.processors.find((one) => one.processor === at)?.box ?? null;
  return html`
    <${MarkLegend} marks=${graph.processors.map((one) => one.mark)} />
    <${GraphFrame} graph=${graph} shown=${shown} label=${label}>
      ${graph.fragments.map(
        (one) => html`<div key=${one.fragment} class="graph-fragment mark-${one.mark}" style=${spot(one.box)}>
          <div class="heading"><${Sign} of=${one.mark} /><bdi class="label" title=${visible(one.fragment)}>${visible(one.fragment)}</bdi></div>
          ${Object.entries(one.panels).map(
            ([name, box]) =>
              html`<div key=${name} class="graph-panel ${name}" style=${spot({ ...box, x: box.x - one.box.x, y: box.y - one.box.y })}><span aria-hidden="true">${name}</span></div>`,
          )}
        </div>`,
      )}
      <${Lines} graph=${graph} />
      ${graph.channels.map(
        (one) => html`<div key=${one.channel} class="graph-channel mark-${one.mark}" style=${spot(one.box)}>
          <bdi class="label">${visible(one.label)}</bdi><span class="figure">${one.mark}</span>
        </div>`,
      )}
      ${graph.processors.map(
        (one) => html`<div
          key=${`${one.fragment}\n${one.processor}`}
          class="graph-processor mark-${one.mark} ${one.processor === at ? "chosen" : ""}"
          style=${spot(one.box)}
          title=${`${visible(one.processor)}\n${visible(one.line)}\n${one.says}`}
        >
          <bdi class="label">${visible(one.label)}</bdi>
          ${one.details.map((line, number) => html`<span key=${number} class="detail">${visible(line)}</span>`)}
        </div>`,
      )}
    <//>
  `;
}

/** @param {{graph: Graph}} props */
function Lines({ graph }) {
  return html`<svg class="graph-lines" width=${graph.width} height=${graph.height} aria-hidden="true">
    <defs>
      ${["kept", "new", "gone"].map(
        (mark) =>
          html`<marker key=${mark} id="arrow-${mark}" class="mark-${mark}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.5 L8,4 L0,7.5 Z" /></marker>`,
      )}
    </defs>
    ${graph.lines.map(
      (one, number) =>
        html`<path key=${number} class="mark-${one.mark}" d=${one.path} stroke-width=${one.channel == null ? 1.6 : 3} marker-end="url(#arrow-${one.mark})" />`,
    )}
  </svg>`;
}

/**
 * A mark in a table: its sign and a word, by default its own.
 * @param {{of: string, says?: string}} props
 */
export function MarkWord({ of, says }) {
  return html`<span class="mark mark-${of}"><${Sign} of=${of} />${says ?? of}</span>`;
}

/** @param {{of: string}} props */
function Sign({ of }) {
  return SIGNS[of] ? html`<span class="sign" aria-hidden="true">${SIGNS[of]}</span>` : null;
}

/** @param {{marks: string[]}} props */
function MarkLegend({ marks }) {
  const counted = ORDER.map((mark) => ({ mark, count: marks.filter((one) => one === mark).length }));
  return html`<ul class="legend" aria-label="Legend">
    ${counted.filter(({ count }) => count).map(({ mark, count }) => html`<li key=${mark}><${MarkWord} of=${mark} says=${`${count} ${mark}`} /></li>`)}
    <li class="note">Drag to move, Ctrl and the wheel to zoom.</li>
  </ul>`;
}

/**
 * The id of a processor, which shows it in the picture.
 * @param {{of: string, onShow: (processor: string) => void}} props
 */
export function Shown({ of, onShow }) {
  return html`<button class="link" type="button" title="Show it in the picture" onClick=${() => onShow(of)}><${Said} of=${of} class="name" /></button>`;
}
