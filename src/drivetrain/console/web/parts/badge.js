// @ts-check
// The state of something, as a word with a colour; the word alone says all, for those who see no colours.

import { html } from "../lib/dom.js";
import { visible } from "../lib/text.js";

/** @type {Record<string, string>} */
const KINDS = {
  running: "good",
  finished: "good",
  ready: "good",
  leads: "good",
  active: "good",
  succeeded: "good",
  pending: "",
  starting: "",
  created: "",
  scheduled: "",
  deploying: "",
  submitted: "",
  accepted: "",
  killed: "",
  canceled: "",
  cancelling: "warn",
  draining: "warn",
  restarting: "warn",
  failing: "bad",
  failed: "bad",
  lost: "bad",
  critical: "bad",
  warning: "warn",
  note: "",
};

/** @param {{of: string, kind?: string}} props */
export function Badge({ of, kind }) {
  return html`<span class="badge ${kind ?? KINDS[of] ?? ""}">${visible(of)}</span>`;
}
