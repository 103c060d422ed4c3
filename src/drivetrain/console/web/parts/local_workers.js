// @ts-check
// Workers added and removed where `drivetrain local` runs the cluster.

import { address, call, post } from "../lib/api.js";
import { html, useState } from "../lib/dom.js";
import { may } from "../lib/session.js";
import { Said } from "../lib/text.js";
import { begun } from "./actions.js";
import { Question } from "./dialog.js";

/** @param {{local: string[] | null | undefined}} props its workers, null where nothing can be added */
export function AddWorker({ local }) {
  const [asked, setAsked] = useState(false);
  if (!local || !may("admin")) return null;
  const act = async () => begun(await post(["workers"]));
  return html`<button class="action" type="button" onClick=${() => setAsked(true)}>Add a worker</button>
    ${
      asked
        ? html`<${Question} title="Add a worker?" does="Add it" onDo=${act} onClose=${() => setAsked(false)}>
          <p>Another process on this machine, with as many slots as the others. Applications that wait for slots begin on it.</p>
        <//>`
        : null
    }`;
}

/** @param {{worker: string, local: string[] | null | undefined}} props */
export function RemoveWorker({ worker, local }) {
  const [asked, setAsked] = useState(false);
  if (!local?.includes(worker) || !may("admin")) return null;
  const act = async () => begun(await call("DELETE", address(["workers", worker]), {}));
  return html`<button class="action danger" type="button" aria-label=${`Remove ${worker}`} onClick=${() => setAsked(true)}>Remove</button>
    ${
      asked
        ? html`<${Question} title="Remove this worker?" does="Remove it" danger=${true} onDo=${act} onClose=${() => setAsked(false)}>
          <p>What it runs is started again on other workers, if they have free slots. Otherwise those applications wait.</p>
          <p><${Said} of=${worker} class="mono" /></p>
        <//>`
        : null
    }`;
}
