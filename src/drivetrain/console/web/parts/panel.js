// @ts-check
// A framed part of a page with a heading, and what stands there when there is nothing to show.

import { html, useState } from "../lib/dom.js";

let number = 0;

/** @param {{title: string, note?: unknown, tools?: unknown, inside?: boolean, children?: unknown}} props */
export function Panel({ title, note, tools, inside = false, children }) {
  const [id] = useState(() => `panel-${(number += 1)}`);
  return html`<section class="panel" aria-labelledby=${id}>
    <header>
      <h2 id=${id}>${title}</h2>
      ${tools}${note ? html`<span class="note">${note}</span>` : null}
    </header>
    ${inside ? html`<div class="inside">${children}</div>` : children}
  </section>`;
}

/** @param {{children?: unknown}} props */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}
