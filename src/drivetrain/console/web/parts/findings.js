// @ts-check
// The diagnosis: one sentence first, then each finding with the way to its root, figures, and what to do.

import { html, useState } from "../lib/dom.js";
import { showCounted, showSpan } from "../lib/figures.js";
import { capitalized, visible } from "../lib/text.js";
import { Badge } from "./badge.js";
import { Panel } from "./panel.js";

/** @typedef {import("../lib/answers").Finding} Finding */

/** So many findings are shown before one asks for all. */
const FEW = 2;

/**
 * @param {{sentence: string, findings: Finding[]}} props
 */
export function Verdict({ sentence, findings }) {
  const [first] = findings;
  const worst = first && first.severity !== "note" ? first : null;
  return html`<section class="verdict ${worst?.severity ?? ""}" aria-label="Diagnosis">
    <${Badge} of=${worst?.severity ?? "ok"} kind=${worst ? undefined : "good"} />
    <div>
      <p class="sentence" role="status">${worst ? visible(sentence) : capitalized(visible(sentence))}</p>
      ${worst ? html`<${Reasons} of=${worst} />` : null}
    </div>
  </section>`;
}

/**
 * The findings that the verdict is not about.
 * @param {{of: Finding[]}} props
 */
export function Findings({ of }) {
  const [all, setAll] = useState(false);
  const others = of[0]?.severity === "note" ? of : of.slice(1);
  if (!others.length) return null;
  const left = others.length - FEW;
  return html`<${Panel} title=${others.length === of.length ? "Findings" : "Further findings"} note=${showCounted(others.length, "finding")}>
    <ol class="findings">
      ${(all ? others : others.slice(0, FEW)).map(
        (one) => html`<li key=${`${one.rule} ${one.subject}`} class="finding">
          <span><${Badge} of=${one.severity} /></span>
          <div>
            <p class="what"><bdi>${visible(one.subject)}</bdi>: <bdi>${visible(one.what)}</bdi></p>
            <${Reasons} of=${one} />
          </div>
        </li>`,
      )}
    </ol>
    ${left > 0 ? html`<button class="more" type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show ${left} more`}</button>` : null}
  <//>`;
}

/** @param {{of: Finding}} props */
function Reasons({ of }) {
  const figures = [...(of.since_ms == null ? [] : [`for ${showSpan(of.since_ms)}`]), ...of.evidence];
  return html`
    ${of.chain.length > 1 ? html`<ol class="chain">${of.chain.map(step)}</ol>` : null}
    ${figures.length ? html`<p class="evidence">${figures.map((each) => visible(each)).join(" · ")}</p>` : null}
    <p class="remedy">${visible(of.remedy)}</p>
  `;
}

/**
 * @param {string} text
 * @param {number} depth
 */
function step(text, depth) {
  return html`<li style=${{ "--depth": Math.min(depth, 8) }}>${visible(text)}</li>`;
}
