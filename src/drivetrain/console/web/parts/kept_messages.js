// @ts-check
// Messages that an application keeps in its state, page by page: how they are asked for, and where they are shown.

import { html, useState } from "../lib/dom.js";
import { usePage } from "../lib/page.js";
import { snapshot } from "../lib/store.js";
import { Empty, Panel } from "./panel.js";

/** @typedef {import("../lib/page.js").Lists} Lists */

/**
 * The page that is shown, and the buttons that ask for another one.
 * @template {keyof Lists} K
 * @param {K} list
 */
export function useMessages(list) {
  const app = snapshot.value?.application.app_id ?? "";
  const [cursor, setCursor] = useState(/** @type {string | null} */ (null));
  const [asked, setAsked] = useState(0);
  const { found, problem } = usePage(list, app, cursor, asked);
  const newest = () => {
    setCursor(null);
    setAsked(asked + 1);
  };
  const tools = html`<div class="tools">
    <button class="action" type="button" onClick=${newest}>Newest</button>
    <button class="action" type="button" disabled=${!found?.next} onClick=${() => setCursor(found?.next ?? null)}>Older</button>
  </div>`;
  return { found, problem, tools };
}

/** @param {{title: string, note: string | null, none: string, of: ReturnType<typeof useMessages>, items: any[] | undefined}} props */
export function MessagesPanel({ title, note, none, of, items }) {
  const { found, problem, tools } = of;
  return html`<${Panel} title=${title} tools=${tools} note=${note}>
    ${
      items?.length
        ? items
        : html`<${Empty}>${found ? none : problem ? "Nothing could be read." : "Reading the state of the application …"}<//>`
    }
  <//>`;
}
