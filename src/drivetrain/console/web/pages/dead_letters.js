// @ts-check
// Dead letters: the messages that the application could not process, page by page.

import { html } from "../lib/dom.js";
import { showClock, showCount, showCounted } from "../lib/figures.js";
import { Said, visible } from "../lib/text.js";
import { Facts } from "../parts/figures.js";
import { MessagesPanel, useMessages } from "../parts/kept_messages.js";
import { ProblemBox } from "../parts/problem.js";

/** @typedef {import("../lib/answers").DeadLetter} DeadLetter */

const LONGEST_HEADING = 300;

export function DeadLettersPage() {
  const of = useMessages("dead-letters");
  const { found, problem } = of;
  const gone = found?.dropped ? `; ${showCounted(found.dropped, "older one")} dropped` : "";
  const items = found?.letters.map((one, at) => html`<${Letter} key=${`${one.stored_ms} ${at}`} of=${one} />`);
  const note = found ? `${showCount(found.count)} kept, newest first${gone}` : null;
  return html`
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    <${MessagesPanel} title="Dead letters" note=${note} none="No message is in the dead letters." of=${of} items=${items} />
  `;
}

/** @param {string} text */
function short(text) {
  return text.length > LONGEST_HEADING ? `${text.slice(0, LONGEST_HEADING)} …` : text;
}

/** @param {{of: DeadLetter}} props */
function Letter({ of }) {
  const lines = of.error.trimEnd().split("\n");
  const place = of.file == null ? null : of.line == null ? of.file : `${of.file}:${of.line}`;
  return html`<article class="error">
    <p class="what"><strong>${visible(short(lines.at(-1) ?? "") || "It could not be processed.")}</strong></p>
    <${Facts}
      of=${[
        ["Message", html`<${Said} of=${of.message} class="mono" />`],
        ["Processor", html`<${Said} of=${of.processor} class="name" />`],
        ["Fragment", html`<${Said} of=${of.fragment} class="name" />`],
        place && ["From", html`<${Said} of=${place} class="mono" />`],
        of.timestamp_ms != null && ["Event time", `${showClock(of.timestamp_ms)} UTC`],
        ["Stored", `${showClock(of.stored_ms)} UTC`],
        of.is_cut && ["Length", "only a part of this message or its error is shown"],
      ]}
    />
    ${
      lines.length > 1 || of.error.length > LONGEST_HEADING
        ? html`<details>
          <summary>Traceback</summary>
          <pre class="trace" tabindex="0">${visible(of.error.trimEnd(), { lines: true })}</pre>
        </details>`
        : null
    }
  </article>`;
}
