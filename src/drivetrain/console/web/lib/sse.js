// @ts-check
// Server-sent events over `fetch`: unlike `EventSource` it sees the status of the answer, so that it does not
// knock on a door for ever that asks for a sign-in, and it waits longer after each failure.

import { Problem, described, unreachable } from "./api.js";

/** A connection that brings nothing for this long is dead: the server sends a comment more often. */
export const SILENCE_MS = 20_000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/** @typedef {{event: string, data: string, id: string}} Sent */

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
 * @returns {(piece: string) => Sent[]}
 */
export function parser() {
  let rest = "";
  let lastId = "";
  return (piece) => {
    rest = (rest + piece).replace(/\r\n/g, "\n");
    const blocks = rest.split("\n\n");
    rest = blocks.pop() ?? "";
    const sent = [];
    for (const block of blocks) {
      /** @type {{event: string, data: string[]}} */
      const one = { event: "message", data: [] };
      for (const line of block.split("\n")) {
        const [, name = "", value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
        if (name === "event") one.event = value;
        else if (name === "data") one.data.push(value);
        else if (name === "id") lastId = value;
      }
      if (one.data.length) sent.push({ event: one.event, data: one.data.join("\n"), id: lastId });
    }
    return sent;
  };
}

/**
 * Reads one stream until it ends, fails, falls silent or is aborted. Calls `onPiece` for every piece, comments
 * included, and `onEvent` for every event. Throws `Problem` if the server refuses it or cannot be reached.
 * @param {URL} url
 * @param {{signal: AbortSignal, lastId: string, onEvent: (sent: Sent) => void, onPiece: () => void}} given
 */
export async function read(url, { signal, lastId, onEvent, onPiece }) {
  const parse = parser();
  for await (const piece of pieces(url, signal, lastId)) {
    onPiece();
    parse(piece).forEach(onEvent); // what it throws is no failure of the connection
  }
}

/**
 * @param {URL} url
 * @param {AbortSignal} signal
 * @param {string} lastId
 */
async function* pieces(url, signal, lastId) {
  const silence = new AbortController();
  const stop = () => silence.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE_MS);
  try {
    const answer = await fetch(url, {
      headers: { Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) },
      credentials: "same-origin",
      cache: "no-store",
      signal: silence.signal,
    });
    if (!answer.ok || !answer.body) throw await described(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      yield value;
    }
  } catch (error) {
    throw error instanceof Problem ? error : unreachable();
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
    silence.abort();
  }
}
