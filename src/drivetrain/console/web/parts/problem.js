// @ts-check
// An error as the server describes it: what happened, and what to do.

import { html } from "../lib/dom.js";
import { visible } from "../lib/text.js";

/**
 * @typedef {{title?: string, detail?: string, remedy?: string, where?: string, expected?: string, got?: string,
 *   user_traceback?: string}} Said
 */

/** @param {{of: unknown}} props */
export function ProblemBox({ of }) {
  const { title, detail, remedy, where, expected, got, user_traceback } = /** @type {Said} */ (of ?? {});
  return html`<div class="problem" role="alert">
    <p><strong>${visible(title ?? "This did not work")}</strong></p>
    ${detail && detail !== title ? html`<p>${visible(detail, { lines: true })}</p>` : null}
    ${where ? html`<p>Where: <bdi>${visible(where)}</bdi></p>` : null}
    ${expected ? html`<p>Expected: <bdi>${visible(expected)}</bdi></p>` : null}
    ${got ? html`<p class="lines">Got: <bdi>${visible(got, { lines: true })}</bdi></p>` : null}
    ${user_traceback ? html`<pre class="trace" tabindex="0">${visible(user_traceback, { lines: true })}</pre>` : null}
    ${remedy ? html`<p class="remedy">What to do: ${visible(remedy)}</p>` : null}
  </div>`;
}
