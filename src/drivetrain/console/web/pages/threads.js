// @ts-check
// What the threads of a process do: their stacks at the moment of the last look.

import { get } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { usePolled } from "../lib/polled.js";
import { isOfRuns, job, snapshot } from "../lib/store.js";
import { visible } from "../lib/text.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";

/** @typedef {import("../lib/answers").Threads} Threads */

const LIMIT_MS = 40_000;
const NEVER_MS = 3_600_000;

export function ThreadsPage() {
  const app = snapshot.value?.application.app_id ?? "";
  const [looks, setLooks] = useState(0);
  const [search, setSearch] = useState("");
  const [executor, setExecutor] = useState("");
  const executors = isOfRuns.value ? [] : (job.value?.executors ?? []);
  const { found, problem } = usePolled(
    (signal) =>
      /** @type {Promise<Threads>} */ (
        get(["applications", app, "threads"], executor ? { executor } : {}, signal, LIMIT_MS)
      ),
    NEVER_MS,
    `${app} ${executor} ${looks}`,
  );
  const shown = (/** @type {string} */ text) =>
    text
      .split("\n\n")
      .filter((one) => one.toLowerCase().includes(search.toLowerCase()))
      .join("\n\n");
  return html`
    <div class="tools">
      <label class="field">Search <input type="search" data-search value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} /></label>
      ${
        executors.length > 1
          ? html`<label class="field">Of <select data-executor value=${executor} onChange=${(/** @type {any} */ event) => setExecutor(event.target.value)}>
              <option value="">any executor</option>
              ${executors.map((one) => html`<option key=${one.executor} value=${one.executor}>${visible(one.executor)}</option>`)}
            </select></label>`
          : null
      }
      <button class="action" type="button" onClick=${() => setLooks(looks + 1)}>Look again</button>
    </div>
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    ${
      found
        ? [
            ["Python", found.python],
            ["Java", found.java],
          ].map(
            ([name, text]) =>
              html`<${Panel} key=${name} title="Threads in ${name}" inside><pre class="trace" tabindex="0">${visible(shown(text), { lines: true })}</pre><//>`,
          )
        : html`<${Panel} title="Threads"><${Empty}>${problem ? "Nothing could be read." : "Reading the threads …"}<//><//>`
    }
  `;
}
