// @ts-check
// Server-sent events over `fetch`: unlike `EventSource` it sees the status of the answer, so that it does not
// knock on a door for ever that asks for a sign-in, and it waits longer after each failure.

import { described } from "./api.js";

/** A connection that brings nothing for this long is dead: the server sends a comment more often. */
export const SILENCE_MS = 20_000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/** @typedef {{event: string, data: string, id: string}} Told */

/**
 * How long to wait before try number `tries` (from 1): doubled each time, up to a limit, and spread, so that a
 * hundred tabs do not come back at the same moment.
 * @param {number} tries
 * @param {() => number} [random]
 */
export function pause_ms(tries, random = Math.random) {
  const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (tries - 1));
  return longest * (0.5 + random() / 2);
}

/**
 * Takes the text of a stream in pieces of any size and gives whole events.
 * @returns {(piece: string) => Told[]}
 */
export function parser() {
  let rest = "";
  let lastId = "";
  return (piece) => {
    rest = (rest + piece).replace(/\r\n/g, "\n");
    const blocks = rest.split("\n\n");
    rest = blocks.pop() ?? "";
    const told = [];
    for (const block of blocks) {
      /** @type {{event: string, data: string[]}} */
      const one = { event: "message", data: [] };
      for (const line of block.split("\n")) {
        const [, name = "", value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
        if (name === "event") one.event = value;
        else if (name === "data") one.data.push(value);
        else if (name === "id") lastId = value;
      }
      if (one.data.length) told.push({ event: one.event, data: one.data.join("\n"), id: lastId });
    }
    return told;
  };
}

/**
 * Reads one stream until it ends, fails, falls silent or is aborted. Calls `onHeard` for every piece, comments
 * included, and `onEvent` for every event. Throws `Problem` if the server refuses it.
 * @param {URL} url
 * @param {{signal: AbortSignal, lastId: string, onEvent: (told: Told) => void, onHeard: () => void}} given
 */
export async function read(url, { signal, lastId, onEvent, onHeard }) {
  const silence = new AbortController();
  signal.addEventListener("abort", () => silence.abort());
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const answer = await fetch(url, {
      headers: { Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) },
      credentials: "same-origin",
      cache: "no-store",
      signal: silence.signal,
    });
    if (!answer.ok || !answer.body) throw await described(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      onHeard();
      parse(value).forEach(onEvent);
    }
  } finally {
    clearTimeout(timer);
  }
}
