// @ts-check
// Late messages: how many there were by processor, and samples of them, page by page.

import { html } from "../lib/dom.js";
import { showClock, showCounted, showSpan } from "../lib/figures.js";
import { Said } from "../lib/text.js";
import { Facts } from "../parts/figures.js";
import { MessagesPanel, useMessages } from "../parts/kept_messages.js";
import { Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";

/** @typedef {import("../lib/answers").LateMessage} LateMessage */

export function LateMessagesPage() {
  const of = useMessages("late-messages");
  const { found, problem } = of;
  const items = found?.samples.map(
    (one) => html`<${Sample} key=${`${one.stored_ms} ${one.fragment} ${one.batch} ${one.message}`} of=${one} />`,
  );
  return html`
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    ${found ? html`<${Counts} of=${found.late} />` : null}
    <${MessagesPanel} title="Samples" note="of late messages, newest first" none="There is no sample of a late message." of=${of} items=${items} />
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
