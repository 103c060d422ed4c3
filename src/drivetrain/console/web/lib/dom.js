// @ts-check
// The one place that imports the modules which draw: templates, hooks and signals.
//
// Templates make nodes, and text in them becomes text nodes. Nothing here or elsewhere parses a string as HTML.

import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

/** @typedef {import("../vendor/preact.js").VNode} VNode */
/** @typedef {import("../vendor/preact.js").Child} Child */

export { render } from "../vendor/preact.js";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
export { batch, computed, effect, signal } from "../vendor/signals.js";

/** A template: html`<p>${text}</p>`. */
export const html = htm.bind(h);
