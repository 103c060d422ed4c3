// @ts-check
// What no stream brings: asked for again from time to time, while the page is looked at.

import { useEffect, useState } from "./dom.js";

/**
 * The newest answer, which stays while later ones fail, and why the last try failed. `of` names what is asked for: when
 * that changes, the answer is forgotten.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} ask
 * @param {number} every_ms
 * @param {string} [of]
 * @returns {{found: T | null, problem: unknown}}
 */
export function usePolled(ask, every_ms, of = "") {
  const [found, setFound] = useState(/** @type {T | null} */ (null));
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  useEffect(() => {
    const stopped = new AbortController();
    const { signal } = stopped;
    const look = async () => {
      if (document.hidden) return;
      try {
        const next = await ask(signal);
        if (signal.aborted) return;
        setFound(next);
        setProblem(null);
      } catch (error) {
        if (!signal.aborted) setProblem(error);
      }
    };
    setFound(null);
    void look();
    const timer = setInterval(look, every_ms);
    return () => {
      stopped.abort();
      clearInterval(timer);
    };
  }, [of]);
  return { found, problem };
}
