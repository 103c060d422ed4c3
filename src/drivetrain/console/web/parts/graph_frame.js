// @ts-check
// The frame in which a graph is drawn: it is moved and zoomed by hand, wheel and keys. What is drawn stands at the
// coordinates that the server sends.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/dom.js";
import { visible } from "../lib/text.js";

/** @typedef {import("../lib/answers").Box} Box */
/** @typedef {{application: string, width: number, height: number}} Drawing */

const FAR = 0.42; // below this scale only fragments and channels have text
const STEP = 1.25;
const LEAST_FITTED = 0.12;

/**
 * `shown` is a box that it brings into view.
 * @param {{graph: Drawing, shown: Box | null, onEscape?: () => void, label?: string, children?: any}} props
 */
export function GraphFrame({ graph, shown, onEscape, label, children }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ x: 0, y: 0, scale: 1, fitted: false });
  const fit = () => setView(fitted(/** @type {HTMLElement} */ (place.current), graph));
  useLayoutEffect(fit, [graph]);
  useEffect(
    () =>
      shown && place.current
        ? setView((before) => shownAt(before, /** @type {HTMLElement} */ (place.current), shown))
        : undefined,
    [shown, graph],
  );
  const zoom = (/** @type {number} */ factor, /** @type {{x: number, y: number}} */ around) =>
    setView((before) => zoomed(before, factor, around));
  const middle = () => ({ x: (place.current?.clientWidth ?? 0) / 2, y: (place.current?.clientHeight ?? 0) / 2 });
  const hand = handOf(place, setView, zoom);
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    const moves = /** @type {Record<string, [number, number]>} */ ({
      ArrowLeft: [60, 0],
      ArrowRight: [-60, 0],
      ArrowUp: [0, 60],
      ArrowDown: [0, -60],
    });
    const move = moves[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (move) setView((before) => ({ ...before, x: before.x + move[0], y: before.y + move[1], fitted: false }));
    else if (event.key === "+" || event.key === "=") zoom(STEP, middle());
    else if (event.key === "-") zoom(1 / STEP, middle());
    else if (event.key === "0") fit();
    else if (event.key === "Escape" && onEscape) onEscape();
    else return;
    event.preventDefault();
  };
  return html`<div class="graph-frame">
    <div class="graph-tools" role="toolbar" aria-label="Zoom">
      <button class="icon-button" type="button" aria-label="Zoom in" title="Zoom in (+)" onClick=${() => zoom(STEP, middle())}>+</button>
      <button class="icon-button" type="button" aria-label="Zoom out" title="Zoom out (-)" onClick=${() => zoom(1 / STEP, middle())}>−</button>
      <button class="icon-button" type="button" title="Show the whole graph (0)" onClick=${fit}>Fit</button>
    </div>
    <div
      class="graph ${view.scale < FAR ? "far" : ""}"
      ref=${place}
      style=${{ height: `${Math.min(1.5 * innerHeight, Math.max(380, graph.height * Math.max(LEAST_FITTED, view.fitted ? view.scale : 1) + 24))}px` }}
      tabindex="0"
      role="group"
      aria-label="${label ?? `Graph of ${visible(graph.application)}`}. Arrow keys move it, plus and minus zoom, 0 shows all."
      onKeyDown=${onKey}
      ...${hand}
    >
      <div
        class="graph-scene"
        style=${{ width: `${graph.width}px`, height: `${graph.height}px`, transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})` }}
      >
        ${children}
      </div>
    </div>
  </div>`;
}

/**
 * The place of a box, as a style.
 * @param {Box} box
 */
export function spot(box) {
  return { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px` };
}

// -- moving and zooming ---------------------------------------------------------------------------------

/** @typedef {{x: number, y: number, scale: number, fitted: boolean}} View */

/**
 * @param {HTMLElement} box
 * @param {Drawing} graph
 * @returns {View}
 */
function fitted(box, graph) {
  // A graph of hundreds of fragments would become a stripe: its middle is shown instead.
  const scale = Math.max(LEAST_FITTED, Math.min(1, (box.clientWidth - 24) / graph.width));
  return { scale, x: (box.clientWidth - graph.width * scale) / 2, y: 12, fitted: true };
}

/**
 * @param {View} before
 * @param {number} factor
 * @param {{x: number, y: number}} around
 * @returns {View}
 */
function zoomed(before, factor, around) {
  const scale = Math.min(3, Math.max(0.05, before.scale * factor));
  const grown = scale / before.scale;
  return {
    scale,
    x: around.x - (around.x - before.x) * grown,
    y: around.y - (around.y - before.y) * grown,
    fitted: false,
  };
}

/**
 * The view that shows a box that it does not show yet.
 * @param {View} before
 * @param {HTMLElement} place
 * @param {Box} box
 * @returns {View}
 */
function shownAt(before, place, box) {
  const scale = Math.max(before.scale, 0.6);
  const [left, top] = [box.x * before.scale + before.x, box.y * before.scale + before.y];
  const inside =
    left >= 0 &&
    top >= 0 &&
    left + box.width * before.scale <= place.clientWidth &&
    top + box.height * before.scale <= place.clientHeight;
  if (inside && scale === before.scale) return before;
  return {
    scale,
    x: place.clientWidth / 2 - (box.x + box.width / 2) * scale,
    y: place.clientHeight / 2 - (box.y + Math.min(box.height, 200) / 2) * scale,
    fitted: false,
  };
}

/**
 * Dragging with a pointer moves, the wheel with Ctrl zooms, two fingers on a touchpad do either.
 * @param {{current: HTMLElement | null}} place
 * @param {(change: (before: View) => View) => void} setView
 * @param {(factor: number, around: {x: number, y: number}) => void} zoom
 */
function handOf(place, setView, zoom) {
  const held = useRef(/** @type {{x: number, y: number} | null} */ (null));
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    /** @param {WheelEvent} event */
    const onWheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls as usual
      event.preventDefault(); // which a listener of Preact, being passive, could not
      const at = box.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 300), { x: event.clientX - at.left, y: event.clientY - at.top });
    };
    box.addEventListener("wheel", onWheel, { passive: false });
    return () => box.removeEventListener("wheel", onWheel);
  }, []);
  return {
    onPointerDown: (/** @type {PointerEvent} */ event) => {
      if (event.button !== 0 || /** @type {Element} */ (event.target).closest("button")) return;
      held.current = { x: event.clientX, y: event.clientY };
      place.current?.setPointerCapture(event.pointerId);
    },
    onPointerMove: (/** @type {PointerEvent} */ event) => {
      const from = held.current;
      if (!from) return;
      held.current = { x: event.clientX, y: event.clientY };
      setView((before) => ({
        ...before,
        x: before.x + event.clientX - from.x,
        y: before.y + event.clientY - from.y,
        fitted: false,
      }));
    },
    onPointerUp: () => (held.current = null),
    onPointerCancel: () => (held.current = null),
  };
}
