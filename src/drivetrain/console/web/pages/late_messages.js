// @ts-check
// Late messages: how many there were by processor, and samples of them, page by page.

import { html, useState } from "../lib/dom.js";
import { showClock, showCounted, showSpan } from "../lib/figures.js";
import { usePage } from "../lib/page.js";
import { snapshot } from "../lib/store.js";
import { Said } from "../lib/text.js";
import { Facts } from "../parts/figures.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";

/** @typedef {import("../lib/answers").LateMessage} LateMessage */

export function LateMessagesPage() {
  const app = snapshot.value?.application.app_id ?? "";
  const [cursor, setCursor] = useState(/** @type {string | null} */ (null));
  const [asked, setAsked] = useState(0);
  const { found, problem } = usePage("late-messages", app, cursor, asked);
  const newest = () => {
    setCursor(null);
    setAsked(asked + 1);
  };
  const tools = html`<div class="tools">
    <button class="action" type="button" onClick=${newest}>Newest</button>
    <button class="action" type="button" disabled=${!found?.next} onClick=${() => setCursor(found?.next ?? null)}>Older</button>
  </div>`;
  return html`
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    ${found ? html`<${Counts} of=${found.late} />` : null}
    <${Panel} title="Samples" tools=${tools} note="of late messages, newest first">
      ${
        found?.samples.length
          ? found.samples.map((one) => html`<${Sample} key=${`${one.stored_ms} ${one.fragment} ${one.batch} ${one.message}`} of=${one} />`)
          : html`<${Empty}>${found ? "There is no sample of a late message." : problem ? "Nothing could be read." : "Reading the state of the application …"}<//>`
      }
    <//>
  `;
}

/** @param {{of: Record<string, number> | null}} props */
function Counts({ of }) {
  const late = Object.entries(of ?? {});
  if (!late.length) return null;
  return html`<${Panel} title="Late messages" note="since its application master started">
    <ul class="lines">
      ${late.map(([id, count]) => html`<li key=${id}>${showCounted(count, "message")} came too late for <${Said} of=${id} /></li>`)}
    </ul>
  <//>`;
}

/** @param {{of: LateMessage}} props */
function Sample({ of }) {
  const behind = Math.max(0, of.clock_ms - of.timestamp_ms);
  return html`<article class="error">
    <p class="what"><strong>${`${showSpan(behind)} behind the clock`}</strong></p>
    <${Facts}
      of=${[
        ["Message", html`<${Said} of=${of.message} class="mono" />`],
        ["Processor", html`<${Said} of=${of.processor} class="name" />`],
        ["Event time", `${showClock(of.timestamp_ms)} UTC`],
        ["Clock then", `${showClock(of.clock_ms)} UTC`],
        ["Fragment", html`<${Said} of=${of.fragment} class="name" />, batch ${of.batch}`],
        ["Stored", `${showClock(of.stored_ms)} UTC`],
        of.is_cut && ["Length", "only the beginning of this message is shown"],
      ]}
    />
  </article>`;
}
