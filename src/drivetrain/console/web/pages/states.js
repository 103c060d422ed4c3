// @ts-check
// The states of a processor by key, as they are now or were at an application time. Each look starts a small Spark.

import { get } from "../lib/api.js";
import { html, useEffect, useRef, useState } from "../lib/dom.js";
import { showClock, showCount, showSpan } from "../lib/figures.js";
import { snapshot } from "../lib/store.js";
import { Said, visible } from "../lib/text.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";
import { Table } from "../parts/table.js";

/** @typedef {import("../lib/answers").StateEntries} StateEntries */
/** @typedef {import("../lib/answers").StateEntry} StateEntry */
/** @typedef {import("../lib/answers").StatefulProcessors} Processors */

const LIMIT_MS = 120_000;

export function StatesPage() {
  const app = snapshot.value?.application.app_id ?? "";
  const [processors, setProcessors] = useState(/** @type {string[] | null} */ (null));
  const [processor, setProcessor] = useState("");
  const [key, setKey] = useState("");
  const [at, setAt] = useState("");
  const [found, setFound] = useState(/** @type {StateEntries | null} */ (null));
  const [problem, setProblem] = useState(/** @type {unknown} */ (null));
  const [isReading, setReading] = useState(false);
  const here = useRef(new AbortController());
  useEffect(() => {
    here.current = new AbortController();
    const { signal } = here.current;
    const names = /** @type {Promise<Processors>} */ (get(["applications", app, "states"], {}, signal, LIMIT_MS));
    names.then(
      (answer) => {
        if (signal.aborted) return;
        setProcessors(answer.processors);
        setProcessor(answer.processors[0] ?? "");
      },
      (error) => signal.aborted || setProblem(error),
    );
    return () => here.current.abort();
  }, [app]);
  /** @param {Event} event */
  const look = async (event) => {
    event.preventDefault();
    const { signal } = here.current;
    setReading(true);
    try {
      const next = await get(["applications", app, "states", processor], { key, at }, signal, LIMIT_MS);
      if (signal.aborted) return;
      setFound(next);
      setProblem(null);
    } catch (error) {
      if (!signal.aborted) setProblem(error);
    }
    setReading(false);
  };
  const typed = (/** @type {(value: string) => void} */ set) => (/** @type {any} */ event) => set(event.target.value);
  const tools = html`<form class="tools" onSubmit=${look}>
    <label class="field">
      Processor
      <select value=${processor} onChange=${typed(setProcessor)}>
        ${(processors ?? []).map((one) => html`<option key=${one} value=${one}>${visible(one)}</option>`)}
      </select>
    </label>
    <label class="field">Key <input type="text" placeholder="all" value=${key} onInput=${typed(setKey)} /></label>
    <label class="field">As of (UTC) <input type="text" placeholder="now" value=${at} onInput=${typed(setAt)} /></label>
    <button class="action" type="submit" disabled=${!processor || isReading}>${isReading ? "Reading …" : "Read"}</button>
  </form>`;
  return html`
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    <${Panel} title="States" tools=${tools} note=${found ? noteOf(found) : null}>
      ${
        found
          ? html`<${Found} of=${found} />`
          : html`<${Empty}>${processors?.length === 0 ? "No processor of this application has a state that can be read." : "Reading starts a small Spark session and takes a few seconds. Write a time in ISO 8601, or checkpoint for the time of the newest one."}<//>`
      }
    <//>
  `;
}

/** @param {StateEntries} of */
function noteOf(of) {
  const when = of.at_ms == null ? `now, at ${showClock(of.clock_ms)} UTC` : `as of ${showClock(of.at_ms)} UTC`;
  const number = of.count > of.states.length ? `${showCount(of.states.length)} of ${showCount(of.count)}` : showCount(of.count);
  return `${number} of ${visible(of.processor)}, ${when}`;
}

/** @param {{of: StateEntries}} props */
function Found({ of }) {
  const isWindowed = of.states.some((one) => one.start_ms != null);
  return html`
    <${Table}
      label="States"
      rows=${of.states}
      id=${(/** @type {StateEntry} */ one) => `${one.start_ms} ${one.end_ms} ${one.key}`}
      columns=${[
        { label: "Key", heads: true, class: "wrap", by: (/** @type {StateEntry} */ one) => one.key, cell: (/** @type {StateEntry} */ one) => html`<${Said} of=${one.key} class="mono" />` },
        isWindowed && {
          label: "Window (UTC)",
          by: (/** @type {StateEntry} */ one) => one.start_ms,
          cell: (/** @type {StateEntry} */ one) => (one.start_ms == null ? "–" : `${showClock(one.start_ms)} – ${showClock(one.end_ms)}`),
        },
        {
          label: "Value",
          class: "wrap",
          cell: (/** @type {StateEntry} */ one) => html`<${Said} of=${one.value} class="mono" />${one.is_cut ? " (the rest is not shown)" : null}`,
        },
      ]}
    />
    ${
      of.step_ms == null
        ? null
        : html`<p class="empty">${of.first_ms == null ? "No earlier time can be read yet." : `Earlier times: every ${showSpan(of.step_ms)} from ${showClock(of.first_ms)} to ${showClock(of.last_ms)} UTC.`}</p>`
    }
  `;
}
