// @ts-check
// A stream of events that is kept open: what it does now, why it is not connected, and when it is tried again.
//
// A hidden tab closes its streams, and opens them again when it is looked at. A broken stream is opened again after
// a pause, which grows until one holds. What the server refuses for good is asked for again only when somebody wants it.

import { Problem, address } from "./api.js";
import { batch, signal } from "./dom.js";
import { pause_ms, read } from "./sse.js";

/** A stream that was received from for this long works: the pause after it is the shortest. */
const HELD_MS = 5_000;

/** @typedef {"connecting" | "live" | "lost" | "paused" | "refused" | "complete"} State */

/**
 * What to follow. `onBegin` is called before each try; `onEvent` takes an event, returns true for the last one, and
 * throws a `Problem` when the stream must be opened again; `onRefused` is called when the server refuses it for good.
 * @typedef {{path: string[], query?: Record<string, string | null>, onBegin?: () => void,
 *   onEvent: (event: string, data: any) => boolean | void, onRefused?: (problem: Problem) => void}} Followed
 */

export class Connection {
  constructor() {
    /** @type {import("../vendor/signals.js").Signal<State>} */
    this.state = signal(/** @type {State} */ ("connecting"));
    /** Why it is lost or refused, as the server says; null while it is neither. */
    this.problem = signal(/** @type {Problem | null} */ (null));
    /** When something was last received, ms since the epoch by this machine's clock; null before the first time. */
    this.receivedAt = signal(/** @type {number | null} */ (null));
    /** When the next try begins, while it is lost. */
    this.retryAt = signal(/** @type {number | null} */ (null));
    /** @type {Followed | null} */
    this.wanted = null;
    this.current = new AbortController();
    this.wake = () => {};
    document.addEventListener("visibilitychange", () => {
      if (!this.isOver()) this.restart();
    });
    addEventListener("online", () => this.wake());
  }

  /**
   * Follows a stream in place of the one before; null follows nothing.
   * @param {Followed | null} next
   */
  follow(next) {
    this.wanted = next;
    batch(() => {
      this.state.value = "connecting";
      this.problem.value = null;
      this.retryAt.value = null;
    });
    this.restart();
  }

  /** Tries again now, not at the end of the pause; also what was refused or is complete. */
  tryNow() {
    if (this.isOver()) this.follow(this.wanted);
    else this.wake();
  }

  /** Whether nothing is tried any more by itself, and neither because somebody looks. */
  isOver() {
    return this.state.peek() === "refused" || this.state.peek() === "complete";
  }

  restart() {
    this.current.abort();
    this.current = new AbortController();
    if (!this.wanted) return;
    if (document.hidden) this.state.value = "paused";
    else void this.keepReading(this.wanted, this.current.signal);
  }

  /**
   * @param {Followed} of
   * @param {AbortSignal} stopped
   */
  async keepReading(of, stopped) {
    let tries = 0;
    let lastId = "";
    if (this.state.peek() !== "lost") this.state.value = "connecting";
    while (!stopped.aborted) {
      let isComplete = false;
      let liveSince = Number.POSITIVE_INFINITY;
      let problem = null;
      of.onBegin?.();
      try {
        await read(address(of.path, of.query), {
          signal: stopped,
          lastId,
          onPiece: () => {
            liveSince = Math.min(liveSince, performance.now());
            this.received();
          },
          onEvent: (sent) => {
            lastId = sent.id;
            isComplete = of.onEvent(sent.event, JSON.parse(sent.data)) === true || isComplete;
          },
        });
      } catch (error) {
        if (stopped.aborted) return;
        if (error instanceof Problem) problem = error;
        else reportError(error); // a bug of ours
      }
      if (stopped.aborted) return;
      if (isComplete) {
        this.state.value = "complete";
        return;
      }
      if (problem?.isForGood) {
        this.refuse(problem);
        of.onRefused?.(problem);
        return;
      }
      tries = performance.now() - liveSince >= HELD_MS ? 1 : tries + 1;
      const pause = pause_ms(tries);
      this.lose(problem, Date.now() + pause);
      await this.rest(pause, stopped);
    }
  }

  received() {
    batch(() => {
      this.receivedAt.value = Date.now();
      this.retryAt.value = null;
      this.problem.value = null;
      this.state.value = "live";
    });
  }

  /** @param {Problem} problem */
  refuse(problem) {
    batch(() => {
      this.problem.value = problem;
      this.retryAt.value = null;
      this.state.value = "refused";
    });
  }

  /**
   * @param {Problem | null} problem
   * @param {number} retryAt
   */
  lose(problem, retryAt) {
    batch(() => {
      this.problem.value = problem?.status ? problem : null;
      this.retryAt.value = retryAt;
      this.state.value = "lost";
    });
  }

  /**
   * Waits, unless woken or stopped.
   * @param {number} pause
   * @param {AbortSignal} stopped
   */
  rest(pause, stopped) {
    return new Promise((done) => {
      const finish = () => {
        clearTimeout(timer);
        stopped.removeEventListener("abort", finish);
        done(undefined);
      };
      const timer = setTimeout(finish, pause);
      stopped.addEventListener("abort", finish);
      this.wake = finish;
    });
  }
}
