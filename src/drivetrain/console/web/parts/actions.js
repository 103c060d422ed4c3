// @ts-check
// What one can have an application do: each asks first, and shows what came of it.

import { Problem, get, post } from "../lib/api.js";
import { html, signal, useEffect, useState } from "../lib/dom.js";
import { may } from "../lib/session.js";
import { isOfRuns, isOver, snapshot } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Question } from "./dialog.js";
import { ProblemBox } from "./problem.js";

/** @typedef {import("../lib/answers").Operation} Operation */
/** @typedef {"kill" | "restart" | "replay" | "savepoint"} Kind */

const LOOK_MS = 700;

/** The operation that was begun last on this page. */
const latest = signal(/** @type {Operation | null} */ (null));

/**
 * Another part of the page has begun an operation: what comes of it is shown.
 * @param {Operation} operation
 */
export function begun(operation) {
  latest.value = operation;
}

/**
 * What a run of this machine cannot do while it runs is left out of its page.
 * @type {{kind: Kind, label: string, danger?: boolean, whenOver: boolean, inRuns: boolean}[]}
 */
const ACTIONS = [
  { kind: "savepoint", label: "Savepoint", whenOver: false, inRuns: true },
  { kind: "restart", label: "Restart", whenOver: true, inRuns: false },
  { kind: "replay", label: "Replay", whenOver: true, inRuns: false },
  { kind: "kill", label: "Kill", danger: true, whenOver: false, inRuns: true },
];

/** @param {{app: string}} props */
export function Actions({ app }) {
  const [asked, setAsked] = useState(/** @type {Kind | null} */ (null));
  if (!may("user")) return null;
  return html`<div class="actions">
    ${ACTIONS.filter((one) => (one.whenOver || !isOver.value) && (one.inRuns || !isOfRuns.value)).map(
      (one) =>
        html`<button key=${one.kind} class="action ${one.danger ? "danger" : ""}" type="button" onClick=${() => setAsked(one.kind)}>${one.kind === "kill" && isOfRuns.value ? "Stop" : one.label}${one.kind === "replay" || one.kind === "savepoint" ? " …" : ""}</button>`,
    )}
    ${asked ? html`<${Asked} key=${asked} kind=${asked} app=${app} onClose=${() => setAsked(null)} />` : null}
  </div>`;
}

const TEXTS = /** @type {const} */ ({
  kill: ["Kill this application?", "Kill it", "All its processes end. Its state is kept: Restart continues from it."],
  restart: [
    "Restart this application?",
    "Restart it",
    "It continues from its state. Batches without a commit run again; exactly-once sinks write nothing twice.",
  ],
  replay: [
    "Replay messages",
    "Replay",
    "The application starts a new life of its state, and processes all messages from this time on once more.",
  ],
  savepoint: [
    "Make a savepoint",
    "Make it",
    "A checkpoint is made and copied below the application's state directory. The application keeps running.",
  ],
});

/** A run is asked to end, as by Ctrl-C; nobody ends its process. */
const STOP = /** @type {const} */ ([
  "Stop this run?",
  "Stop it",
  "It finishes its batches, and its process ends. Its state is kept: drivetrain run continues from it.",
]);

/** @param {{kind: Kind, app: string, onClose: () => void}} props */
function Asked({ kind, app, onClose }) {
  const [title, does, about] = kind === "kill" && isOfRuns.value ? STOP : TEXTS[kind];
  const [value, setValue] = useState("");
  const act = async () => {
    const body =
      kind === "replay" ? { replay_from: value } : kind === "savepoint" ? (value ? { name: value } : {}) : undefined;
    latest.value = await post(["applications", app, kind === "savepoint" ? "savepoints" : kind], body);
  };
  return html`<${Question} title=${title} does=${does} danger=${kind === "kill"} ready=${kind !== "replay" || value !== ""} onDo=${act} onClose=${onClose}>
    <p>${about}</p>
    <p><${Said} of=${app} class="mono" /></p>
    ${
      kind === "replay"
        ? html`<label class="field stacked">From (UTC)<input required placeholder="2026-03-01T00:00:00" value=${value} onInput=${(/** @type {any} */ event) => setValue(event.target.value)} /></label>`
        : null
    }
    ${
      kind === "savepoint"
        ? html`<label class="field stacked">Name (optional)<input pattern="[A-Za-z0-9][A-Za-z0-9_.\\-]*" maxlength="100" value=${value} onInput=${(/** @type {any} */ event) => setValue(event.target.value)} /></label>`
        : null
    }
  <//>`;
}

/** @param {{app: string, number: number, onClose: () => void}} props */
export function AskedToGoBack({ app, number, onClose }) {
  const act = async () => {
    latest.value = await post(["applications", app, "versions", `${number}`, "rollback"]);
  };
  return html`<${Question} title="Go back to version ${number}?" does="Go back" ready=${true} onDo=${act} onClose=${onClose}>
    <p>The version is compiled first. It takes effect with the next batch of each changed fragment, and is on trial until every changed fragment has processed messages with it, or gets none. A version that is on trial now is cancelled.</p>
    <p><${Said} of=${app} class="mono" /></p>
  <//>`;
}

const DOING = {
  kill: "Killing it",
  restart: "Restarting it",
  replay: "Beginning the replay",
  savepoint: "Making a savepoint",
  change: "Changing the application; the new version is on trial",
  rollback: "Going back; the version is on trial",
  "add-worker": "Starting a worker",
  "remove-worker": "Ending the worker; it hands over what it runs",
};
const DONE = {
  kill: "It has been killed",
  restart: "It is being started again",
  replay: "The replay begins",
  savepoint: "The savepoint is complete",
  change: "The change is complete: the new version is in force",
  rollback: "The rollback is complete: that graph is in force again",
  "add-worker": "The worker is registered",
  "remove-worker": "The worker has ended",
};

/**
 * The operation as it is now. A console that is away for a moment is asked again; one that was started again meanwhile
 * knows nothing of it, and never will.
 * @param {Operation} before
 * @returns {Promise<Operation>}
 */
async function lookedAt(before) {
  try {
    return await get(["operations", before.operation_id]);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (!error.isForGood) return { ...before };
    const problem = { ...error, title: "The outcome is unknown", detail: error.message };
    return { ...before, state: "failed", problem: /** @type {any} */ (problem) };
  }
}

/**
 * What came of the latest action on the application of the page, or on the cluster.
 * @param {{ofCluster?: boolean}} props
 */
export function Outcome({ ofCluster = false }) {
  const now = latest.value;
  const app = ofCluster ? null : snapshot.value?.application.app_id;
  const mine = now != null && now.app_id === app ? now : null;
  useEffect(() => {
    if (mine?.state !== "running") return undefined;
    const timer = setTimeout(async () => {
      const next = await lookedAt(mine);
      if (latest.peek() === mine) latest.value = next;
    }, LOOK_MS);
    return () => clearTimeout(timer);
  }, [mine]);
  if (!mine) return null;
  const dismiss = html`<button class="icon-button" type="button" aria-label="Dismiss" onClick=${() => (latest.value = null)}>✕</button>`;
  if (mine.state === "failed")
    return html`<div class="outcome failed"><${ProblemBox} of=${mine.problem} />${dismiss}</div>`;
  const place = mine.result["place"] ?? mine.result["worker"];
  return html`<div class="outcome" role="status">
    <span>${mine.state === "running" ? `${DOING[mine.kind]} …` : DONE[mine.kind]}${place ? html`: <code>${visible(place)}</code>` : null}</span>
    ${mine.state === "running" ? null : dismiss}
  </div>`;
}
