// @ts-check
// The logs of an application's processes: merged, followed, filtered.

import { address } from "../lib/api.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/dom.js";
import { showCount } from "../lib/figures.js";
import { LogLines } from "../lib/log_lines.js";
import { pause_ms, read } from "../lib/sse.js";
import { snapshot } from "../lib/store.js";
import { visible } from "../lib/text.js";
import { LogView } from "../parts/log_view.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";

/** Lines are shown this often, however fast they come. */
const DRAW_MS = 200;

export function LogsPage() {
  const app = snapshot.value?.application.app_id ?? "";
  const { kept, version, state } = useLogs(app);
  const [process, setProcess] = useState("");
  const [search, setSearch] = useState("");
  const [follow, setFollow] = useState(true);
  const lines = useMemo(() => kept.matching(process, search), [kept, version, process, search]);
  const processes = kept.processes();
  const tools = html`<div class="tools">
    <label class="field">
      Process
      <select value=${process} onChange=${(/** @type {any} */ event) => setProcess(event.target.value)}>
        <option value="">all</option>
        ${processes.map((one) => html`<option key=${one} value=${one}>${visible(one)}</option>`)}
      </select>
    </label>
    <label class="field">
      Lines with
      <input type="search" data-search value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.target.value)} />
    </label>
    <label class="field">
      <input type="checkbox" checked=${follow} onChange=${(/** @type {any} */ event) => setFollow(event.target.checked)} />
      Follow
    </label>
  </div>`;
  const count = `${showCount(lines.length)} of ${showCount(kept.lines.length)} lines${kept.dropped ? `; ${showCount(kept.dropped)} older ones are not kept here` : ""}`;
  return html`
    ${state.problem ? html`<${ProblemBox} of=${state.problem} />` : null}
    <${Panel} title="Logs" tools=${tools} note=${`${count}${state.ended ? "; complete" : ""}`}>
      ${
        lines.length
          ? html`<${LogView} lines=${lines} follow=${follow} onFollow=${setFollow} mark=${search} names=${!process} />`
          : html`<${Empty}>${kept.lines.length ? "No line matches." : state.ended ? "Its processes have written nothing." : "Waiting for lines …"}<//>`
      }
    <//>
  `;
}

/**
 * Follows the logs while the page is looked at.
 * @param {string} app
 */
function useLogs(app) {
  const kept = useRef(new LogLines());
  const [version, setVersion] = useState(0);
  const [state, setState] = useState({ ended: false, problem: /** @type {unknown} */ (null) });
  useEffect(() => {
    let stopped = new AbortController();
    let timer = 0;
    const draw = () => {
      if (!timer)
        timer = window.setTimeout(() => {
          timer = 0;
          setVersion((before) => before + 1);
        }, DRAW_MS);
    };
    const begin = () => {
      stopped.abort();
      stopped = new AbortController();
      if (!document.hidden) void keepReading(app, kept, draw, setState, stopped.signal);
    };
    begin();
    document.addEventListener("visibilitychange", begin);
    return () => {
      stopped.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", begin);
    };
  }, [app]);
  return { kept: kept.current, version, state };
}

/**
 * Each stream begins with the ends of all logs, so what was kept is forgotten when one begins.
 * @param {string} app
 * @param {{current: LogLines}} kept
 * @param {() => void} draw
 * @param {(state: {ended: boolean, problem: unknown}) => void} setState
 * @param {AbortSignal} stopped
 */
async function keepReading(app, kept, draw, setState, stopped) {
  for (let tries = 1; !stopped.aborted; tries += 1) {
    const lines = new LogLines();
    let ended = false;
    try {
      await read(address(["applications", app, "logs", "events"]), {
        signal: stopped,
        lastId: "",
        onHeard: () => {
          if (kept.current !== lines) kept.current = lines;
          tries = 1;
        },
        onEvent: (told) => {
          const data = JSON.parse(told.data);
          if (told.event === "log") lines.take(data.process, data.text);
          if (told.event === "end") {
            ended = true;
            setState({
              ended: data.problem == null,
              problem:
                data.problem == null
                  ? null
                  : { title: "The logs cannot be read", detail: data.problem, remedy: data.remedy },
            });
          }
          draw();
        },
      });
    } catch (error) {
      if (!stopped.aborted) setState({ ended: false, problem: error });
    }
    if (ended || stopped.aborted) return;
    await new Promise((done) => setTimeout(done, pause_ms(tries)));
  }
}
