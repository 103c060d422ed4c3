// @ts-check
// The one live stream of this tab: what to follow, whether it is connected, and since when it is silent.
//
// A hidden tab closes its stream, and opens it again when it is looked at. A broken stream is opened again after
// a pause that grows. Whatever breaks, the last figures stay on the page, with their age above them.

import { Problem, address } from "./api.js";
import { signal } from "./dom.js";
import { pause_ms, read } from "./sse.js";

/** @typedef {"connecting" | "live" | "lost" | "paused"} State */

/** @type {import("../vendor/signals.js").Signal<State>} */
export const state = signal(/** @type {State} */ ("connecting"));
/** When something was last received, ms since the epoch by this machine's clock; null before the first time. */
export const heardAt = signal(/** @type {number | null} */ (null));
/** When the next try begins, while the stream is broken. */
export const retryAt = signal(/** @type {number | null} */ (null));
/** Now, every second, while the page is looked at. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

/**
 * What to follow: `onRefused` is called when the server refuses it for good.
 * @typedef {{path: string[], query: Record<string, string | null>, onEvent: (event: string, data: any) => void,
 *   onRefused: (problem: Problem) => void}} Followed
 */

/** @type {Followed | null} */
let wanted = null;
let current = new AbortController();
/** @type {() => void} */
let wake = () => {};

document.addEventListener("visibilitychange", restart);
addEventListener("online", () => wake());

/**
 * Follows a stream in place of the one before; null follows nothing.
 * @param {Followed | null} next
 */
export function follow(next) {
  wanted = next;
  restart();
}

/** Tries again now, not at the end of the pause. */
export function tryNow() {
  wake();
}

function restart() {
  current.abort();
  current = new AbortController();
  if (document.hidden) {
    state.value = "paused";
    return;
  }
  now.value = Date.now();
  if (wanted) void keepReading(wanted, current.signal);
}

/**
 * @param {Followed} of
 * @param {AbortSignal} stopped
 */
async function keepReading(of, stopped) {
  let tries = 0;
  let lastId = "";
  if (state.peek() !== "lost") state.value = "connecting";
  while (!stopped.aborted) {
    try {
      await read(address(of.path, of.query), {
        signal: stopped,
        lastId,
        onHeard: () => {
          tries = 0;
          heardAt.value = Date.now();
          retryAt.value = null;
          state.value = "live";
        },
        onEvent: (told) => {
          lastId = told.id;
          of.onEvent(told.event, JSON.parse(told.data));
        },
      });
    } catch (error) {
      if (error instanceof Problem && [401, 403, 404].includes(error.status)) {
        of.onRefused(error);
        return;
      }
    }
    if (stopped.aborted) return;
    tries += 1;
    const pause = pause_ms(tries);
    state.value = "lost";
    retryAt.value = Date.now() + pause;
    await rest(pause, stopped);
  }
}

/**
 * Waits, unless woken or stopped.
 * @param {number} pause
 * @param {AbortSignal} stopped
 */
function rest(pause, stopped) {
  return new Promise((done) => {
    const timer = setTimeout(finish, pause);
    function finish() {
      clearTimeout(timer);
      stopped.removeEventListener("abort", finish);
      done(undefined);
    }
    stopped.addEventListener("abort", finish);
    wake = finish;
  });
}
