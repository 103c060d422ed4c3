// @ts-check
// Errors, and the restarts that they caused: the user's traceback first.

import { html } from "../lib/dom.js";
import { showCounted } from "../lib/figures.js";
import { job } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Badge } from "../parts/badge.js";
import { Facts } from "../parts/figures.js";
import { Empty, Panel } from "../parts/panel.js";

/** @typedef {import("../lib/answers").ErrorReport} ErrorReport */
/** @typedef {{error: ErrorReport, kind: "ended" | "restarting" | "recovered", fragment?: string}} Shown */

export function ErrorsPage() {
  const of = job.value;
  const shown = of ? errorsOf(of) : [];
  const restarted = of?.fragments.filter((one) => one.attempt > 1) ?? [];
  return html`
    <${Panel} title="Restarts">
      ${
        restarted.length
          ? html`<ul class="lines">
            ${restarted.map(
              (one) =>
                html`<li key=${one.fragment}><${Said} of=${one.fragment} /> has started ${showCounted(one.attempt, "time")} and is <${Badge} of=${one.state} /></li>`,
            )}
          </ul>`
          : html`<${Empty}>No fragment has been started again.<//>`
      }
    <//>
    <${Panel} title="Errors" note=${shown.length ? "newest first" : null}>
      ${shown.length ? shown.map((one, at) => html`<${One} key=${`${shown.length - at}`} of=${one} />`) : html`<${Empty}>No errors since the application started.<//>`}
    <//>
  `;
}

/**
 * The errors of a job, newest first, each once.
 * @param {import("../lib/store.js").Job} of
 * @returns {Shown[]}
 */
function errorsOf(of) {
  const same = (/** @type {ErrorReport | null} */ a, /** @type {ErrorReport} */ b) =>
    JSON.stringify(a) === JSON.stringify(b);
  const now = of.fragments.filter((one) => one.error && !same(of.error, one.error));
  const past = [...of.errors]
    .reverse()
    .filter((one) => !same(of.error, one) && !now.some((each) => same(each.error, one)));
  return [
    ...(of.error ? [/** @type {Shown} */ ({ error: of.error, kind: "ended" })] : []),
    ...now.map((one) => /** @type {Shown} */ ({ error: one.error, kind: "restarting", fragment: one.fragment })),
    ...past.map((error) => /** @type {Shown} */ ({ error, kind: "recovered" })),
  ];
}

const WORDS = /** @type {const} */ ({
  ended: ["ended the application", "bad"],
  restarting: ["its last error", "warn"],
  recovered: ["recovered", "good"],
});

/** @param {{of: Shown}} props */
function One({ of: { error, kind, fragment } }) {
  const [word, colour] = WORDS[kind];
  return html`<article class="error">
    <p class="what">
      <${Badge} of=${word} kind=${colour} /> ${fragment ? html`<${Said} of=${fragment} />: ` : null}<strong>${visible(error.what, { lines: true })}</strong>
    </p>
    <${Facts}
      of=${[
        ["Code", html`<code>${visible(error.code)}</code>`],
        error.where && ["Where", html`<${Said} of=${error.where} class="mono" />`],
        error.expected && ["Expected", html`<${Said} of=${error.expected} />`],
        error.got && ["Got", html`<${Said} of=${error.got} />`],
        error.remedy && ["What to do", html`<${Said} of=${error.remedy} />`],
      ]}
    />
    ${
      error.user_traceback
        ? html`<details open=${kind !== "recovered"}>
          <summary>Traceback of the application's code</summary>
          <pre class="trace" tabindex="0">${visible(error.user_traceback.trimEnd(), { lines: true })}</pre>
        </details>`
        : null
    }
  </article>`;
}
