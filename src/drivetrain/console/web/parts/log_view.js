// @ts-check
// Lines of logs: only those in view are nodes of the page, so that tens of thousands scroll smoothly.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/dom.js";
import { visible } from "../lib/text.js";

const ROW = 18;
const BEYOND = 30; // rows kept ready above and below

/** @typedef {{number: number, process: string, text: string}} Line */

/** @param {{lines: Line[], follow: boolean, onFollow: (follow: boolean) => void, mark?: string, names?: boolean}} props */
export function LogView({ lines, follow, onFollow, mark = "", names = true }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    const watcher = new ResizeObserver(() => setView((before) => ({ ...before, height: box.clientHeight })));
    watcher.observe(box);
    return () => watcher.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (follow && place.current) place.current.scrollTop = place.current.scrollHeight;
  }, [lines, follow]);
  /** @param {Event} event */
  const onScroll = (event) => {
    const box = /** @type {HTMLElement} */ (event.currentTarget);
    setView({ top: box.scrollTop, height: box.clientHeight });
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < ROW;
    if (atEnd !== follow) onFollow(atEnd);
  };
  const first = Math.max(0, Math.floor(view.top / ROW) - BEYOND);
  const last = Math.min(lines.length, Math.ceil((view.top + view.height) / ROW) + BEYOND);
  return html`<div class="log" ref=${place} onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label="Log lines">
    <div style=${{ height: `${lines.length * ROW}px` }}></div>
    ${lines.slice(first, last).map(
      (
        line,
        at,
      ) => html`<div key=${line.number} class="row ${level(line.text)}" style=${{ top: `${(first + at) * ROW}px` }}>
        ${names ? html`<span class="process" title=${visible(line.process)}>${visible(line.process)}</span>` : null}
        <span class="line"><bdi>${marked(visible(line.text, { most: 2000 }), mark)}</bdi></span>
      </div>`,
    )}
  </div>`;
}

/** @param {string} text */
function level(text) {
  const head = text.slice(0, 200);
  if (/\b(ERROR|CRITICAL|FATAL)\b|^Traceback |^\w*(Error|Exception)\b/.test(head)) return "error";
  return /\bWARN(ING)?\b/.test(head) ? "warning" : "";
}

/**
 * @param {string} text
 * @param {string} mark
 */
function marked(text, mark) {
  const at = mark ? text.toLowerCase().indexOf(mark.toLowerCase()) : -1;
  if (at < 0) return text;
  const end = at + mark.length;
  return html`${text.slice(0, at)}<mark>${text.slice(at, end)}</mark>${text.slice(end)}`;
}
