// @ts-check
// The live graph: what runs where, how much flows, what is blocked; details of what one points at beside it.

import { html, useMemo } from "../lib/dom.js";
import { showClock, showCount, showCounted, showLatency, showRate, showSize, showSpan } from "../lib/figures.js";
import { ask, route } from "../lib/router.js";
import { channelRates, graph, job } from "../lib/store.js";
import { Said, capitalized, visible } from "../lib/text.js";
import { Badge } from "../parts/badge.js";
import { Facts } from "../parts/figures.js";
import { GraphView } from "../parts/graph_view.js";
import { Empty, Panel } from "../parts/panel.js";

/** @typedef {import("../lib/answers").Graph} Graph */
/** @typedef {import("../parts/graph_view.js").Live} Live */
/** @typedef {import("../parts/graph_view.js").Node} Node */

const KINDS = /** @type {const} */ (["fragment", "channel", "processor"]);

export function GraphPage() {
  const of = graph.value;
  const now = job.value;
  const rates = channelRates.value;
  const live = useMemo(
    () => ({
      fragments: new Map(now?.fragments.map((one) => [one.fragment, one])),
      channels: new Map(now?.channels.map((one) => [one.channel, one])),
      processors: new Map(now?.processors.map((one) => [one.processor, one])),
      rates,
    }),
    [now, rates],
  );
  const asked = route.value.query;
  const kind = KINDS.find((one) => one === asked.get("kind")) ?? "fragment";
  const id = asked.get("at");
  const at = useMemo(() => (id ? { kind, id } : null), [kind, id]);
  const select = (/** @type {Node | null} */ node) => ask({ at: node?.id, kind: node?.kind });
  if (!of) return html`<${Panel} title="Graph"><${Empty}>The console is planning the application …<//><//>`;
  return html`
    <div class="graph-page ${at ? "with-details" : ""}">
      <${GraphView} graph=${of} live=${live} at=${at} onSelect=${select} />
      ${at ? html`<div class="graph-details"><${Details} of=${of} live=${live} at=${at} onClose=${() => select(null)} /></div>` : null}
    </div>
    <${Legend} of=${of} />
  `;
}

/** @param {{of: Graph, live: Live, at: Node, onClose: () => void}} props */
function Details({ of, live, at, onClose }) {
  const close = html`<button class="icon-button" type="button" aria-label="Close the details" onClick=${onClose}>✕</button>`;
  const shown = { fragment: FragmentFacts, channel: ChannelFacts, processor: ProcessorFacts }[at.kind];
  return html`<${Panel} title=${capitalized(at.kind)} tools=${html`<span class="note"></span>${close}`} inside>
    <div class="stack"><h3><${Said} of=${at.id} /></h3><${shown} of=${of} live=${live} id=${at.id} /></div>
  <//>`;
}

/** @param {{of: Graph, live: Live, id: string}} props */
function FragmentFacts({ of, live, id }) {
  const planned = of.fragments.find((one) => one.fragment === id);
  const now = live.fragments.get(id);
  if (!now)
    return html`<p class="note">${planned ? "It has not reported anything yet." : "The graph has no such fragment."}</p>`;
  return html`<${Facts}
    of=${[
      ["State", html`<${Badge} of=${now.state} />`],
      ["Messages", `${showCount(now.messages)}, ${showRate(now.messages_per_s)}`],
      ["Wait", showCount(now.lag_messages)],
      ["Last batch", now.batch_id < 0 ? "none yet" : `number ${now.batch_id}, ${showSpan(now.batch_ms)}`],
      now.figures.latency_p99_ms != null && ["Latency", `${showLatency(now.figures)} (half, 99 % of batches)`],
      now.figures.state_bytes != null && [
        "State",
        [
          showSize(now.figures.state_bytes),
          now.figures.state_rows != null && showCounted(now.figures.state_rows, "row"),
          showCounted(now.figures.state_partitions ?? 0, "partition"),
        ]
          .filter(Boolean)
          .join(", "),
      ],
      ["Clock", showClock(now.clock_ms)],
      now.clock_delay_ms != null && ["Delay", `newest message ${showSpan(now.clock_delay_ms)} ahead`],
      now.stalled_ms > 0 && [
        "Stands",
        `for ${showSpan(now.stalled_ms)}${now.waiting_for ? `, waits for ${visible(now.waiting_for)}` : ""}`,
      ],
      now.blocked_by && ["Blocked by", html`<strong class="bad-text"><${Said} of=${now.blocked_by} /></strong>`],
      ["Attempt", String(now.attempt)],
      ["Executor", html`<${Said} of=${now.executor ?? "–"} />`],
      now.error && ["Last error", html`<${Said} of=${now.error.what} class="bad-text" />`],
      planned?.stateful && ["Keeps state", html`<${Said} of=${planned.stateful} />`],
    ]}
  />`;
}

/** @param {{of: Graph, live: Live, id: string}} props */
function ChannelFacts({ of, live, id }) {
  const planned = of.channels.find((one) => one.channel === id);
  const now = live.channels.get(id);
  return html`<${Facts}
    of=${[
      planned && ["From", html`<${Said} of=${planned.producer_fragment} />`],
      planned && ["To", html`<${Said} of=${planned.subscriber_fragment} />`],
      planned && ["Why it exists", html`<${Said} of=${planned.why} />`],
      ["Enters", showRate(live.rates.get(id))],
      now && ["Lag", `${showCount(now.lag_messages)} messages, ${showSize(now.lag_bytes)}`],
      now?.lag_ms != null && ["Behind", showSpan(now.lag_ms)],
      now && [
        "Unacknowledged",
        `${showCount(now.unacknowledged_messages)} of ${showCount(now.window_messages)} messages`,
      ],
      now &&
        now.blocked_ms > 0 && [
          "Blocked",
          html`<strong class="bad-text">for ${showSpan(now.blocked_ms)} by <${Said} of=${now.subscriber} /></strong>`,
        ],
      now && ["Clock", showClock(now.clock_ms)],
      now && now.losses > 0 && ["Losses", `${showCount(now.losses)}, ${showCount(now.replays)} repaired`],
      now && ["On disk", showSize(now.kept_bytes)],
    ]}
  />`;
}

/** @param {{of: Graph, live: Live, id: string}} props */
function ProcessorFacts({ of, live, id }) {
  const planned = of.processors.find((one) => one.processor === id);
  const now = live.processors.get(id);
  const sink = of.sinks.find((one) => one.processor === id);
  return html`<${Facts}
    of=${[
      planned && ["Kind", `${planned.kind}, ${planned.how}`],
      planned && ["Does", html`<${Said} of=${planned.text} />`],
      planned && ["Why it runs this way", html`<${Said} of=${planned.why} />`],
      planned && ["Written at", html`<${Said} of=${planned.line} class="mono" />`],
      planned && ["Fragment", html`<${Said} of=${planned.fragment} />`],
      planned?.columns && ["Columns", html`<${Said} of=${planned.columns} class="mono" />`],
      now && ["In", `${showCount(now.messages_in)}${now.in_per_s == null ? "" : `, ${showRate(now.in_per_s)}`}`],
      now && ["Out", `${showCount(now.messages_out)}${now.out_per_s == null ? "" : `, ${showRate(now.out_per_s)}`}`],
      now && now.late > 0 && ["Late", showCount(now.late)],
      now && now.dead_letters > 0 && ["Dead letters", showCount(now.dead_letters)],
      sink && ["Writes to", html`<${Said} of=${sink.target} />`],
      sink && ["Guarantee", html`<${Said} of=${`${sink.guarantee}: ${sink.why}`} />`],
    ]}
  />`;
}

/** @type {[string, string][]} */
const HOW = [
  ["source", "source"],
  ["native", "native Spark"],
  ["lowered", "Python lowered to Spark"],
  ["arrow", "Python over Arrow"],
  ["task", "Task with state"],
  ["sink", "sink"],
];

/** @param {{of: Graph}} props */
function Legend({ of }) {
  const used = new Set(of.processors.map((one) => one.how));
  return html`<ul class="legend" aria-label="Legend">
    ${HOW.filter(([how]) => used.has(how)).map(([how, word]) => html`<li key=${how} class="how-${how}"><i></i>${word}</li>`)}
    <li><i class="line"></i>channel; wider means more messages</li>
    <li><i class="line blocked"></i>blocked</li>
    <li class="note">Drag to move, Ctrl and the wheel to zoom.</li>
  </ul>`;
}
