// @ts-check
// Changing an application while it runs: upload the new file, look at what it changes, then do it.

import { address, call } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { Said } from "../lib/text.js";
import { begun } from "../parts/actions.js";
import { ComparedView, MarkWord } from "../parts/compared_view.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/answers").PlannedChange} Planned */
/** @typedef {import("../lib/answers").ProcessorChange} Change */

/** The console loads the file within a minute. */
const LIMIT_MS = 180_000;

/** @param {{app: string}} props */
export function ChangePanel({ app }) {
  const [file, setFile] = useState(/** @type {File | null} */ (null));
  const [path, setPath] = useState("");
  const [planned, setPlanned] = useState(/** @type {Planned | null} */ (null));
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  const [busy, setBusy] = useState("");
  const zip = file?.name.toLowerCase().endsWith(".zip") ?? false;
  /**
   * @param {string[]} to
   * @param {Record<string, string | number>} more
   */
  const send = (to, more = {}) => {
    const named = /** @type {File} */ (file);
    return call("POST", address(["applications", app, "changes", ...to], { file: path || named.name, ...more }), {
      body: named,
      headers: { "Content-Type": zip ? "application/zip" : "text/x-python" },
      limit_ms: LIMIT_MS,
    });
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
  /** @param {Event} event */
  const plan = (event) => {
    event.preventDefault();
    void during("plan", async () => setPlanned(await send(["plan"])));
  };
  const make = () =>
    during("make", async () => {
      begun(await send([], { against: /** @type {Planned} */ (planned).against }));
      setPlanned(null);
    });
  return html`
    <${Panel} title="Change the running application" inside>
      <form class="stack" onSubmit=${plan}>
        <label class="field stacked">
          The new file, or a zip of its directory
          <input
            type="file"
            accept=".py,.zip"
            required
            onChange=${(/** @type {any} */ event) => {
              setFile(event.target.files[0] ?? null);
              setPath("");
              setPlanned(null);
            }}
          />
        </label>
        ${
          zip
            ? html`<label class="field stacked">Path of the file in the zip<input required placeholder="app.py" value=${path} onInput=${(/** @type {any} */ event) => setPath(event.target.value)} /></label>`
            : null
        }
        <p><button class="action first" type="submit" disabled=${!file || busy !== ""}>${busy === "plan" ? "Planning …" : "Show what changes"}</button></p>
      </form>
      ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    <//>
    ${planned ? html`<${Plan} of=${planned} busy=${busy} onMake=${make} />` : null}
  `;
}

/** @param {{of: Planned, busy: string, onMake: () => void}} props */
function Plan({ of, busy, onMake }) {
  const changed = of.changes.filter((one) => one.fate !== "kept");
  return html`
    <${Panel} title="Changes from version ${of.against}" note=${`${of.changes.length - changed.length} kept`}>
      ${
        changed.length
          ? html`<${Table} label="Changes" rows=${changed} id=${(/** @type {Change} */ one) => one.processor} columns=${COLUMNS} />`
          : html`<${Empty}>Nothing changes.<//>`
      }
      <div class="inside">
        <p><${Said} of=${of.verdict} /></p>
        ${of.can_be_made ? html`<p><button class="action first" type="button" disabled=${busy !== ""} onClick=${onMake}>${busy === "make" ? "Asking …" : "Make this change"}</button></p>` : null}
      </div>
    <//>
    <${ComparedView} graph=${of.graph} label="The graph and what changes in it" />
  `;
}

/** @type {import("../parts/table.js").Column<Change>[]} */
const COLUMNS = [
  { label: "Processor", heads: true, cell: (one) => html`<${Said} of=${one.processor} class="name" />` },
  { label: "Effect", cell: (one) => html`<${MarkWord} of=${one.mark} says=${one.fate} />` },
  { label: "Why", class: "wrap", cell: (one) => html`<${Said} of=${one.why} />` },
  { label: "Before", class: "wrap", cell: (one) => html`<${Said} of=${one.before ?? "–"} />` },
  { label: "After", class: "wrap", cell: (one) => html`<${Said} of=${one.after ?? "–"} />` },
];
