// @ts-check
// Dead letters: the messages that the application could not process, page by page, and how many came too late.

import { get } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/dom.js";
import { showClock, showCount, showCounted } from "../lib/figures.js";
import { snapshot } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Facts } from "../parts/figures.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";

/** @typedef {import("../lib/answers").DeadLetters} DeadLetters */
/** @typedef {import("../lib/answers").DeadLetter} DeadLetter */

/** The console loads the file of the application at first, to find its state. */
const LIMIT_MS = 90_000;
const LONGEST_HEADING = 300;

export function DeadLettersPage() {
  const app = snapshot.value?.application.app_id ?? "";
  const [cursor, setCursor] = useState(/** @type {string | null} */ (null));
  const [asked, setAsked] = useState(0);
  const { found, problem } = useLetters(app, cursor, asked);
  const newest = () => {
    setCursor(null);
    setAsked(asked + 1);
  };
  const tools = html`<div class="tools">
    <button class="action" type="button" onClick=${newest}>Newest</button>
    <button class="action" type="button" disabled=${!found?.next} onClick=${() => setCursor(found?.next ?? null)}>Older</button>
  </div>`;
  const gone = found?.dropped ? `; ${showCounted(found.dropped, "older one")} dropped` : "";
  return html`
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    ${found ? html`<${Late} of=${found.late} />` : null}
    <${Panel} title="Dead letters" tools=${tools} note=${found ? `${showCount(found.count)} kept, newest first${gone}` : null}>
      ${
        found?.letters.length
          ? found.letters.map((one, at) => html`<${Letter} key=${`${one.stored_ms} ${at}`} of=${one} />`)
          : html`<${Empty}>${found ? "No message is in the dead letters." : problem ? "Nothing could be read." : "Reading the state of the application …"}<//>`
      }
    <//>
  `;
}

/**
 * A page, which stays while the next one is read.
 * @param {string} app @param {string | null} cursor @param {number} asked
 * @returns {{found: DeadLetters | null, problem: unknown}}
 */
function useLetters(app, cursor, asked) {
  const [found, setFound] = useState(/** @type {DeadLetters | null} */ (null));
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  useEffect(() => {
    const left = new AbortController();
    get(["applications", app, "dead-letters"], { cursor }, left.signal, LIMIT_MS).then(
      (next) => {
        if (left.signal.aborted) return;
        setFound(next);
        setProblem(null);
      },
      (error) => {
        if (!left.signal.aborted) setProblem(error);
      },
    );
    return () => left.abort();
  }, [app, cursor, asked]);
  return { found, problem };
}

/** @param {{of: Record<string, number> | null}} props */
function Late({ of }) {
  const late = Object.entries(of ?? {});
  if (!late.length) return null;
  return html`<${Panel} title="Late messages" note="since its application master started; they are not kept: an application reads them as the stream late">
    <ul class="lines">
      ${late.map(([id, count]) => html`<li key=${id}>${showCounted(count, "message")} came too late for <${Said} of=${id} /></li>`)}
    </ul>
  <//>`;
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
