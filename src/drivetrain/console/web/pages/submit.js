// @ts-check
// Submitting: upload a file, look at the plan with its guarantees, then go.

import { address, call } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { showCounted, showSize } from "../lib/figures.js";
import { go, link } from "../lib/router.js";
import { Said } from "../lib/text.js";
import { Facts } from "../parts/figures.js";
import { GraphView, NO_FIGURES } from "../parts/graph_view.js";
import { Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/answers").PlannedUpload} Planned */
/** @typedef {import("../lib/answers").ApplicationSetting} Setting */

/** The console plans within a minute, and uploads may be large. */
const LIMIT_MS = 180_000;

/** @typedef {{file: File | null, path: string, name: string, sets: Record<string, string>}} Choice */

export function SubmitPage() {
  const [choice, setChoice] = useState(/** @type {Choice} */ ({ file: null, path: "", name: "", sets: {} }));
  const [planned, setPlanned] = useState(/** @type {Planned | null} */ (null));
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState("");
  const [key, setKey] = useState(randomKey);
  const change = (/** @type {Partial<Choice>} */ part) => {
    setChoice((before) => ({ ...before, ...part }));
    setPlanned(null);
    setKey(randomKey());
  };
  /**
   * @param {string} word
   * @param {() => Promise<void>} work
   */
  const during = async (word, work) => {
    setBusy(word);
    setProblem(null);
    try {
      await work();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy("");
    }
  };
  const plan = (of = choice) => during("plan", async () => setPlanned(await send(["plans"], of)));
  const planWith = (/** @type {Choice["sets"]} */ sets) => {
    change({ sets });
    void plan({ ...choice, sets });
  };
  const submit = () =>
    during("submit", async () => go(link(["apps", (await send(["applications"], choice, key)).app_id])));
  return html`
    <h1>Submit an application</h1>
    <${Upload} choice=${choice} onChange=${change} busy=${busy} onPlan=${() => plan()} />
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    ${planned ? html`<${Plan} of=${planned} choice=${choice} onSets=${planWith} onSubmit=${submit} busy=${busy} />` : null}
  `;
}

/**
 * Sends the file; the same key and file again submit nothing twice.
 * @param {string[]} path
 * @param {Choice} choice
 * @param {string} [key]
 */
function send(path, choice, key) {
  const file = /** @type {File} */ (choice.file);
  const url = address(path, { file: choice.path || file.name, name: choice.name });
  for (const [name, value] of Object.entries(choice.sets)) url.searchParams.append("set", `${name}=${value}`);
  const type = { "Content-Type": isZip(file) ? "application/zip" : "text/x-python" };
  return call("POST", url, {
    body: file,
    headers: key ? { ...type, "Idempotency-Key": key } : type,
    limit_ms: LIMIT_MS,
  });
}

/**
 * The settings in a text with one on a line; without "=" its value is empty.
 * @param {string} text
 */
function settingsIn(text) {
  const lines = text.split("\n").map((line) => line.trim());
  const found = lines.filter(Boolean).map((line) => {
    const at = line.indexOf("=");
    return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
  return Object.fromEntries(found);
}

function randomKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** @param {File} file */
function isZip(file) {
  return file.name.toLowerCase().endsWith(".zip");
}

/** @param {{choice: Choice, onChange: (part: Partial<Choice>) => void, busy: string, onPlan: () => void}} props */
function Upload({ choice, onChange, busy, onPlan }) {
  const { file } = choice;
  const zip = file != null && isZip(file);
  const [written, setWritten] = useState("");
  const write = (/** @type {string} */ text) => {
    setWritten(text);
    onChange({ sets: settingsIn(text) });
  };
  const ready = file != null && (!zip || choice.path !== "") && !busy;
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    onPlan();
  };
  return html`<${Panel} title="1. Upload" inside>
    <form class="stack" onSubmit=${submit}>
      <label class="field stacked">
        The application's file, or a zip of its directory
        <input type="file" accept=".py,.zip" required onChange=${(/** @type {any} */ event) => onChange({ file: event.target.files[0] ?? null, path: "" })} />
      </label>
      ${file ? html`<p class="note"><${Said} of=${file.name} />, ${showSize(file.size)}</p>` : null}
      ${
        zip
          ? html`<label class="field stacked">Path of the file in the zip<input required placeholder="app.py" value=${choice.path} onInput=${(/** @type {any} */ event) => onChange({ path: event.target.value })} /></label>`
          : null
      }
      <label class="field stacked">Name in the cluster (optional)<input maxlength="100" value=${choice.name} onInput=${(/** @type {any} */ event) => onChange({ name: event.target.value })} /></label>
      <label class="field stacked">
        Settings, one NAME=VALUE per line (optional)
        <textarea rows="3" spellcheck="false" value=${written} onInput=${(/** @type {any} */ event) => write(event.target.value)}></textarea>
      </label>
      <p><button class="action first" type="submit" disabled=${!ready}>${busy === "plan" ? "Planning …" : "Show the plan"}</button></p>
      <p class="note">The file runs in a separate process while it is planned. Nothing is submitted yet.</p>
    </form>
  <//>`;
}

/**
 * @param {{of: Planned, choice: Choice, onSets: (sets: Choice["sets"]) => void, onSubmit: () => void,
 *   busy: string}} props
 */
function Plan({ of, choice, onSets, onSubmit, busy }) {
  const { graph } = of;
  return html`
    <${Panel} title="2. Plan" note=${graph ? `${showCounted(graph.fragments.length, "fragment")}, ${showCounted(graph.channels.length, "channel")}` : null} inside>
      <div class="stack">
        <${Facts}
          of=${[
            ["Name", html`<${Said} of=${of.name} />`],
            graph && ["Guarantee", html`<strong><${Said} of=${graph.guarantee} /></strong>`],
            graph && ["Input", graph.is_bounded ? "bounded: it ends" : "unbounded: it runs until it is killed"],
            graph && ["Latency", graph.latency],
            !graph && ["Graph", "none: the file has its own application master"],
          ]}
        />
        ${
          graph?.sinks.length
            ? html`<${Table}
              label="Sinks"
              rows=${graph.sinks}
              id=${(/** @type {any} */ one) => one.processor}
              columns=${[
                { label: "Sink", heads: true, cell: (/** @type {any} */ one) => html`<${Said} of=${one.processor} />` },
                {
                  label: "Writes to",
                  class: "wrap",
                  cell: (/** @type {any} */ one) => html`<${Said} of=${one.target} />`,
                },
                { label: "Guarantee", cell: (/** @type {any} */ one) => html`<${Said} of=${one.guarantee} />` },
                { label: "Why", class: "wrap", cell: (/** @type {any} */ one) => html`<${Said} of=${one.why} />` },
              ]}
            />`
            : null
        }
      </div>
    <//>
    ${graph ? html`<${GraphView} graph=${graph} live=${NO_FIGURES} at=${null} onSelect=${() => {}} />` : null}
    ${of.settings.length ? html`<${Settings} of=${of.settings} sets=${choice.sets} onSets=${onSets} busy=${busy} />` : null}
    <${Panel} title="3. Go" inside>
      <p><button class="action first" type="button" disabled=${busy !== ""} onClick=${onSubmit}>${busy === "submit" ? "Submitting …" : html`Submit <${Said} of=${of.name} />`}</button></p>
    <//>
  `;
}

/**
 * The settings that the application declares; a changed one needs another plan.
 * @param {{of: Setting[], sets: Choice["sets"], onSets: (sets: Choice["sets"]) => void, busy: string}} props
 */
function Settings({ of, sets, onSets, busy }) {
  const [edited, setEdited] = useState(sets);
  return html`<${Panel} title="Settings" note="other values need a new plan">
    <${Table}
      label="Settings"
      rows=${of}
      id=${(/** @type {Setting} */ one) => one.name}
      columns=${[
        { label: "Setting", heads: true, cell: (/** @type {Setting} */ one) => html`<${Said} of=${one.name} />` },
        { label: "Kind", cell: (/** @type {Setting} */ one) => one.kind },
        {
          label: "Value",
          cell: (/** @type {Setting} */ one) =>
            html`<span class="field"><input aria-label=${`Value of ${one.name}`} value=${edited[one.name] ?? one.value ?? ""} onInput=${(/** @type {any} */ event) => setEdited({ ...edited, [one.name]: event.target.value })} /></span>`,
        },
        {
          label: "Meaning",
          class: "wrap",
          cell: (/** @type {Setting} */ one) => html`<${Said} of=${one.description} />`,
        },
      ]}
    />
    <div class="inside"><button class="action" type="button" disabled=${busy !== "" || JSON.stringify(edited) === JSON.stringify(sets)} onClick=${() => onSets(edited)}>Plan with these values</button></div>
  <//>`;
}
