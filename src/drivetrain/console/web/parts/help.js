// @ts-check
// The list of keyboard shortcuts.

import { html, useEffect, useRef } from "../lib/dom.js";

/** @param {{places: {label: string, key?: string}[], onClose: () => void}} props */
export function Help({ places, onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  return html`<dialog ref=${dialog} onClose=${onClose} aria-label="Keyboard shortcuts">
    <div class="stack">
      <h2>Keyboard shortcuts</h2>
      <dl class="facts">
        ${places.filter((one) => one.key).map((one) => html`<dt><kbd>g</kbd> <kbd>${one.key}</kbd></dt><dd>${one.label}</dd>`)}
        <dt><kbd>/</kbd></dt><dd>Search on this page</dd>
        <dt><kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd></dt><dd>In the graph: zoom in, zoom out, show all</dd>
        <dt><kbd>?</kbd></dt><dd>These shortcuts</dd>
      </dl>
      <div class="actions"><button class="action first" type="button" onClick=${() => dialog.current?.close()}>Close</button></div>
    </div>
  </dialog>`;
}
