// @ts-check
// Text from outside, made safe to look at: what would be invisible or reorder its surroundings is shown by name.
//
// Names, log lines and values come from users, and from whoever sends them messages. As text nodes they cannot
// run anything; but control characters, and marks that turn the direction of reading, can still make a name look
// like another one.

import { html } from "./dom.js";

/** Longer texts are cut: a browser lays out a line of megabytes for seconds. */
const MOST_CHARACTERS = 20_000;

// C0 but tab and line feed, DEL, C1, marks of direction, zero-width space, word joiner, byte order mark.
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\ufeff]/gu;
const LONE_SURROGATE = /\p{Surrogate}/gu;

/**
 * The text with control characters as escapes: "a\x00b", "a\u202eb".
 * Line feeds and tabs stay in texts of several lines, and are escapes elsewhere.
 * @param {unknown} text
 * @param {{lines?: boolean, most?: number}} options
 * @returns {string}
 */
export function visible(text, options = {}) {
  const { lines = false, most = MOST_CHARACTERS } = options;
  const whole = String(text ?? "");
  const kept = whole.length > most ? whole.slice(0, most) : whole;
  let shown = kept.replace(INVISIBLE, escape).replace(LONE_SURROGATE, "\ufffd");
  if (!lines) shown = shown.replace(/[\n\t]/g, escape);
  const left = whole.length - kept.length;
  return left ? `${shown} … and ${left.toLocaleString("en")} more characters` : shown;
}

/** @type {Record<string, string>} */
const SHORT = { "\n": "\\n", "\t": "\\t", "\r": "\\r" };

/** @param {string} character */
function escape(character) {
  const code = (character.codePointAt(0) ?? 0).toString(16);
  return SHORT[character] ?? (code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`);
}

/**
 * Our own text as the beginning of a sentence.
 * @param {string} text
 */
export function capitalized(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * A text from outside in a line of ours; its direction does not change that of the line.
 * @param {{of: unknown, class?: string, title?: string}} props
 */
export function Said({ of, class: classes, title }) {
  return html`<bdi class=${classes} title=${title}>${visible(of)}</bdi>`;
}
