// @ts-check
// The graph of an application, live. Everything stands where `drivetrain plan --picture` draws it: the server sends
// coordinates, so nodes never jump. Nodes are elements of the page, lines are SVG below them.

import { html } from "../lib/dom.js";
import { showClock, showCount, showRate, showShort, showSpan } from "../lib/figures.js";
import { visible } from "../lib/text.js";
import { GraphFrame, spot } from "./graph_frame.js";

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

/** The figures of a graph that does not run.
 * @type {Live} */
export const NO_FIGURES = { fragments: new Map(), channels: new Map(), processors: new Map(), rates: new Map() };

/** @param {{graph: Graph, live: Live, at: Node | null, onSelect: (node: Node | null) => void}} props */
export function GraphView({ graph, live, at, onSelect }) {
  return html`<${GraphFrame} graph=${graph} shown=${at ? boxOf(graph, at) : null} onEscape=${() => onSelect(null)}>
    <${Frames} graph=${graph} live=${live} at=${at} onSelect=${onSelect} />
    <${Lines} graph=${graph} live=${live} />
    <${Channels} graph=${graph} live=${live} at=${at} onSelect=${onSelect} />
    <${Processors} graph=${graph} live=${live} at=${at} onSelect=${onSelect} />
  <//>`;
}

/**
 * @param {Graph} graph
 * @param {Node} at
 * @returns {Box | null}
 */
function boxOf(graph, at) {
  const found =
    at.kind === "fragment"
      ? graph.fragments.find((one) => one.fragment === at.id)
      : at.kind === "channel"
        ? graph.channels.find((one) => one.channel === at.id)
        : graph.processors.find((one) => one.processor === at.id);
  return found?.box ?? null;
}

/** @typedef {{graph: Graph, live: Live, at: Node | null, onSelect: (node: Node | null) => void}} Drawn */

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
function Processors({ graph, live, at, onSelect }) {
  const stateful = new Set(graph.fragments.map((one) => one.stateful));
  return graph.processors.map((one) => {
    const now = live.processors.get(one.processor);
    const chosen = at?.kind === "processor" && at.id === one.processor;
    const classes = `graph-processor how-${one.how} ${stateful.has(one.processor) ? "stateful" : ""} ${chosen ? "chosen" : ""}`;
    return html`<button
      key=${`${one.fragment}\n${one.processor}`}
      type="button"
      class=${classes}
      style=${spot(one.box)}
      aria-pressed=${chosen}
      title=${`${visible(one.processor)}\n${visible(one.line)}`}
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
