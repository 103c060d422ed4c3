// @ts-check
// A page of a list that the console reads in the state of an application: the newest ones, or those before a cursor.

import { get } from "./api.js";
import { useEffect, useState } from "./dom.js";

/** @typedef {{"dead-letters": import("./answers").DeadLetters, "late-messages": import("./answers").LateMessages}} Lists */

/** The console loads the file of the application at first, to find its state. */
const LIMIT_MS = 90_000;

/**
 * A page, which stays while the next one is read; `asked` changes to have it read again.
 * @template {keyof Lists} K
 * @param {K} list @param {string} app @param {string | null} cursor @param {number} asked
 * @returns {{found: Lists[K] | null, problem: unknown}}
 */
export function usePage(list, app, cursor, asked) {
  const [found, setFound] = useState(/** @type {Lists[K] | null} */ (null));
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  useEffect(() => {
    const left = new AbortController();
    get(["applications", app, list], { cursor }, left.signal, LIMIT_MS).then(
      (next) => {
        if (left.signal.aborted) return;
        setFound(next);
        setProblem(null);
      },
      (error) => {
        if (!left.signal.aborted) setProblem(error);
      },
    );
    return () => left.abort();
  }, [list, app, cursor, asked]);
  return { found, problem };
}
