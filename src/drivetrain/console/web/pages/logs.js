// @ts-check
// The logs of an application's processes: merged, followed, filtered.

import { Problem } from "../lib/api.js";
import { Connection } from "../lib/connection.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/dom.js";
import { showCount } from "../lib/figures.js";
import { LogLines } from "../lib/log_lines.js";
import { isOver, snapshot } from "../lib/store.js";
import { visible } from "../lib/text.js";
import { LogView } from "../parts/log_view.js";
import { Empty, Panel } from "../parts/panel.js";
import { ProblemBox } from "../parts/problem.js";

/** Lines are shown this often, however fast they come. */
const DRAW_MS = 200;

/** Complete logs of an application that is not over are followed again after this time. */
const STARTED_AGAIN_MS = 2000;

/** @type {Partial<Record<import("../lib/connection.js").State, string>>} */
const SUFFIXES = { complete: "; complete", lost: "; not connected", refused: "; not connected" };

/** The stream of logs of this tab. */
const connection = new Connection();

export function LogsPage() {
  const app = snapshot.value?.application.app_id ?? "";
  const { kept, version } = useLogs(app);
  const problem = connection.problem.value;
  const isComplete = connection.state.value === "complete";
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
    ${problem ? html`<${ProblemBox} of=${problem} />` : null}
    <${Panel} title="Logs" tools=${tools} note=${`${count}${SUFFIXES[connection.state.value] ?? ""}`}>
      ${
        lines.length
          ? html`<${LogView} lines=${lines} follow=${follow} onFollow=${setFollow} mark=${search} names=${!process} />`
          : html`<${Empty}>${kept.lines.length ? "No line matches." : isComplete ? "Its processes have written nothing." : "Waiting for lines …"}<//>`
      }
    <//>
  `;
}

/**
 * Follows the logs while the page is there. Each stream begins with the ends of all logs, so what was kept is
 * forgotten when one has brought something.
 * @param {string} app
 */
function useLogs(app) {
  const kept = useRef(new LogLines());
  const [version, setVersion] = useState(0);
  const over = isOver.value;
  const isComplete = connection.state.value === "complete";
  useEffect(() => {
    let lines = new LogLines();
    let timer = 0;
    const draw = () => {
      if (!timer)
        timer = window.setTimeout(() => {
          timer = 0;
          setVersion((before) => before + 1);
        }, DRAW_MS);
    };
    kept.current = lines;
    connection.follow({
      path: ["applications", app, "logs", "events"],
      onBegin: () => {
        lines = new LogLines();
      },
      onEvent: (event, data) => {
        if (event === "end" && data.problem != null) throw unreadable(data);
        kept.current = lines;
        if (event === "log") lines.take(data.process, data.text);
        draw();
        return event === "end";
      },
    });
    draw();
    return () => {
      connection.follow(null);
      clearTimeout(timer);
    };
  }, [app]);
  useEffect(() => {
    // Logs end a moment before the page hears of the application's end. When it does not hear of it, the application
    // was started again.
    if (over || !isComplete) return;
    const timer = window.setTimeout(() => connection.tryNow(), STARTED_AGAIN_MS);
    return () => clearTimeout(timer);
  }, [over, isComplete]);
  return { kept: kept.current, version };
}

/** @param {import("../lib/answers").EndEvent} data */
function unreadable({ problem, remedy }) {
  return new Problem(503, { title: "The logs cannot be read", detail: problem ?? undefined, remedy });
}
