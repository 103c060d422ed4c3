// @ts-check
// The graph of an application, live. Everything stands where `drivetrain plan --picture` draws it: the server sends
// coordinates, so nodes never jump. Nodes are elements of the page, lines are SVG below them.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/dom.js";
import { showClock, showCount, showRate, showShort, showSpan } from "../lib/figures.js";
import { visible } from "../lib/text.js";

/** @typedef {import("../lib/answers").Graph} Graph */
/** @typedef {import("../lib/answers").Box} Box */
/** @typedef {import("../lib/answers").Fragment} Fragment */
/** @typedef {import("../lib/answers").Channel} Channel */
/** @typedef {import("../lib/answers").Processor} Processor */

/**
 * The live figures by id; `reached` by channels' id in the plan.
 * @typedef {{fragments: Map<string, Fragment>, channels: Map<string, Channel>, processors: Map<string, Processor>,
 *   rates: Map<string, number | null>}} Live
 */
/** @typedef {{kind: "fragment" | "channel" | "processor", id: string}} Node */

const FAR = 0.42; // below this scale only fragments and channels have text
const STEP = 1.25;
const LEAST_FITTED = 0.12;

/** The figures of a graph that does not run.
 * @type {Live} */
export const NO_FIGURES = { fragments: new Map(), channels: new Map(), processors: new Map(), rates: new Map() };

/**
 * The class of the colour of what a version does to a processor.
 * @param {string} fate
 */
export function fateClass(fate) {
  return `fate-${fate.replaceAll(" ", "-")}`;
}

/**
 * `fates` colours the processors that a version changes.
 * @param {{graph: Graph, live: Live, at: Node | null, onSelect: (node: Node | null) => void,
 *   fates?: Map<string, string>}} props
 */
export function GraphView({ graph, live, at, onSelect, fates }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [view, setView] = useState({ x: 0, y: 0, scale: 1, fitted: false });
  const fit = () => setView(fitted(/** @type {HTMLElement} */ (place.current), graph));
  useLayoutEffect(fit, [graph]);
  useEffect(
    () =>
      at && place.current
        ? setView((before) => shownAt(before, /** @type {HTMLElement} */ (place.current), graph, at))
        : undefined,
    [at?.id, graph],
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
    else if (event.key === "Escape") onSelect(null);
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
      aria-label="Graph of ${visible(graph.application)}. Arrow keys move it, plus and minus zoom, 0 shows all."
      onKeyDown=${onKey}
      ...${hand}
    >
      <div
        class="graph-scene"
        style=${{ width: `${graph.width}px`, height: `${graph.height}px`, transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})` }}
      >
        <${Frames} graph=${graph} live=${live} at=${at} onSelect=${onSelect} />
        <${Lines} graph=${graph} live=${live} />
        <${Channels} graph=${graph} live=${live} at=${at} onSelect=${onSelect} />
        <${Processors} graph=${graph} live=${live} at=${at} onSelect=${onSelect} fates=${fates} />
      </div>
    </div>
  </div>`;
}

/** @typedef {{graph: Graph, live: Live, at: Node | null, onSelect: (node: Node | null) => void,
 *   fates?: Map<string, string>}} Drawn */

/** @param {Drawn} props */
function Frames({ graph, live, at, onSelect }) {
  return graph.fragments.map((one) => {
    const now = live.fragments.get(one.fragment);
    const chosen = at?.kind === "fragment" && at.id === one.fragment;
    const classes = `graph-fragment ${trouble(now)} ${chosen ? "chosen" : ""}`;
    return html`<div key=${one.fragment} class=${classes} style=${spot(one.box)}>
      <button class="heading" type="button" aria-pressed=${chosen} onClick=${() => onSelect(chosen ? null : { kind: "fragment", id: one.fragment })}>
        <span class="state ${now?.state ?? ""}" title=${now?.state}></span>
        <bdi class="label" title=${visible(one.fragment)}>${visible(one.fragment)}</bdi>
        <span class="figure">${now ? figure(now) : ""}</span>
      </button>
      ${Object.entries(one.panels).map(
        ([name, box]) =>
          html`<div key=${name} class="graph-panel ${name}" style=${spot({ ...box, x: box.x - one.box.x, y: box.y - one.box.y })}><span aria-hidden="true">${name}</span></div>`,
      )}
    </div>`;
  });
}

/** @param {Fragment} now */
function figure(now) {
  if (now.stalled_ms) return `stands ${showSpan(now.stalled_ms)}`;
  const rate = showRate(now.messages_per_s);
  return now.lag_messages ? `${rate} · ${showShort(now.lag_messages)} wait` : rate;
}

/** @param {Fragment | undefined} now */
function trouble(now) {
  if (!now) return "";
  if (now.state === "failed" || now.error) return "failing";
  if (now.blocked_by) return "blocked";
  return now.stalled_ms ? "standing" : "";
}

/** @param {Drawn} props */
function Processors({ graph, live, at, onSelect, fates }) {
  const stateful = new Set(graph.fragments.map((one) => one.stateful));
  return graph.processors.map((one) => {
    const now = live.processors.get(one.processor);
    const chosen = at?.kind === "processor" && at.id === one.processor;
    const fate = fates?.get(one.processor);
    const classes = `graph-processor how-${one.how} ${stateful.has(one.processor) ? "stateful" : ""} ${chosen ? "chosen" : ""} ${fate ? fateClass(fate) : ""}`;
    return html`<button
      key=${`${one.fragment}\n${one.processor}`}
      type="button"
      class=${classes}
      style=${spot(one.box)}
      aria-pressed=${chosen}
      title=${`${visible(one.processor)}\n${visible(one.line)}${fate ? `\n${fate}` : ""}`}
      onClick=${() => onSelect(chosen ? null : { kind: "processor", id: one.processor })}
    >
      <bdi class="label">${visible(one.label)}</bdi>
      ${one.details.map((line, number) => html`<span key=${number} class="detail">${visible(line)}</span>`)}
      ${now && (now.in_per_s ?? now.out_per_s) != null ? html`<span class="rate">${showRate(now.messages_in ? now.in_per_s : now.out_per_s)}</span>` : null}
      ${now && now.late + now.dead_letters ? html`<span class="lost" title=${`${showCount(now.late)} late, ${showCount(now.dead_letters)} dead letters`}>${showShort(now.late + now.dead_letters)}</span>` : null}
    </button>`;
  });
}

/** @param {Drawn} props */
function Channels({ graph, live, at, onSelect }) {
  return graph.channels.map((one) => {
    const now = live.channels.get(one.channel);
    const chosen = at?.kind === "channel" && at.id === one.channel;
    return html`<button
      key=${one.channel}
      type="button"
      class="graph-channel ${now?.blocked_ms ? "blocked" : ""} ${chosen ? "chosen" : ""}"
      style=${spot(one.box)}
      aria-pressed=${chosen}
      title=${now ? `clock ${showClock(now.clock_ms)}` : undefined}
      onClick=${() => onSelect(chosen ? null : { kind: "channel", id: one.channel })}
    >
      <bdi class="label">${visible(one.label)}</bdi>
      <span class="figure">${now ? channelFigure(now, live.rates.get(one.channel)) : "channel"}</span>
    </button>`;
  });
}

/**
 * @param {Channel} now
 * @param {number | null | undefined} rate
 */
function channelFigure(now, rate) {
  if (now.blocked_ms) return `full for ${showSpan(now.blocked_ms)}`;
  const wait = now.lag_messages ? `${showShort(now.lag_messages)} wait` : "nothing waits";
  return rate == null ? wait : `${showRate(rate)} · ${wait}`;
}

/** @param {{graph: Graph, live: Live}} props */
function Lines({ graph, live }) {
  return html`<svg class="graph-lines" width=${graph.width} height=${graph.height} aria-hidden="true">
    <defs>
      ${["line", "channel", "blocked"].map(
        (kind) =>
          html`<marker key=${kind} id="arrow-${kind}" class=${kind} viewBox="0 0 8 8" refX="7" refY="4" markerWidth=${kind === "line" ? 9 : 13} markerHeight=${kind === "line" ? 9 : 13} markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.5 L8,4 L0,7.5 Z" /></marker>`,
      )}
    </defs>
    ${graph.lines.map((one, number) => {
      const now = one.channel == null ? undefined : live.channels.get(one.channel);
      const kind = one.channel == null ? "line" : now?.blocked_ms ? "blocked" : "channel";
      const rate = one.channel == null ? live.processors.get(one.source ?? "")?.out_per_s : live.rates.get(one.channel);
      return html`<path key=${number} class=${kind} d=${one.path} stroke-width=${width(rate, kind)} marker-end="url(#arrow-${kind})" />`;
    })}
  </svg>`;
}

/**
 * The width of a line by its rate: one more pixel for ten times as many messages.
 * @param {number | null | undefined} rate
 * @param {string} kind
 */
function width(rate, kind) {
  const least = kind === "line" ? 1.3 : 2.2;
  return (least + (rate ? Math.max(0, Math.log10(rate + 1)) * 1.1 : 0)).toFixed(1);
}

/** @param {Box} box */
function spot(box) {
  return { left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px` };
}

// -- moving and zooming ---------------------------------------------------------------------------------

/** @typedef {{x: number, y: number, scale: number, fitted: boolean}} View */

/**
 * @param {HTMLElement} box
 * @param {Graph} graph
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
 * The view that shows a node that it does not show yet.
 * @param {View} before
 * @param {HTMLElement} place
 * @param {Graph} graph
 * @param {Node} at
 * @returns {View}
 */
function shownAt(before, place, graph, at) {
  const box =
    at.kind === "fragment"
      ? graph.fragments.find((one) => one.fragment === at.id)?.box
      : at.kind === "channel"
        ? graph.channels.find((one) => one.channel === at.id)?.box
        : graph.processors.find((one) => one.processor === at.id)?.box;
  if (!box) return before;
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
