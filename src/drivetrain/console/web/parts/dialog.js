// @ts-check
// Questions before something is changed, as the browser's own modal dialog: it holds the focus and ends with Escape.

import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { ProblemBox } from "./problem.js";

/**
 * @param {{title: string, does: string, danger?: boolean, onDo: () => Promise<void>, onClose: () => void,
 *   ready?: boolean, children?: unknown}} props
 */
export function Question({ title, does, danger = false, ready = true, onDo, onClose, children }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  /** @param {Event} event */
  const act = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await onDo();
      dialog.current?.close();
    } catch (error) {
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onClose=${onClose} aria-label=${title}>
    <form class="stack" onSubmit=${act}>
      <h2>${title}</h2>
      ${children}
      ${problem ? html`<${ProblemBox} of=${problem} />` : null}
      <div class="actions">
        <button class="action" type="button" onClick=${() => dialog.current?.close()}>Cancel</button>
        <button class="action ${danger ? "danger" : "first"}" type="submit" disabled=${busy || !ready}>
          ${busy ? "Working …" : does}
        </button>
      </div>
    </form>
  </dialog>`;
}
