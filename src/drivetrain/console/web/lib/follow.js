// @ts-check
// Follows the application that the address names, or the list of all, and keeps what the stream brings.

import { Problem, get } from "./api.js";
import { effect } from "./dom.js";
import { fetchHistory } from "./history.js";
import { live, setConsoleTime } from "./live.js";
import { route } from "./router.js";
import { isSignedIn } from "./session.js";
import * as store from "./store.js";

/** A stream that continues no other one has named every application within this time. */
const WHOLE_LIST_MS = 5000;

let followed = /** @type {string | null | undefined} */ (undefined);
/** The applications that the present stream has named. */
let named = /** @type {Set<string>} */ (new Set());

/** From now on follow what the address names, whenever it changes and somebody is signed in. */
export function followTheAddress() {
  effect(() => {
    const { path } = route.value;
    const app = path[0] === "apps" ? (path[1] ?? null) : null;
    if (!isSignedIn.value) {
      followed = undefined;
      live.follow(null);
      store.forgetAll();
      return;
    }
    if (app === followed) return;
    followed = app;
    store.forget();
    live.follow({ ...stream(app), onRefused });
  });
}

/** @param {string | null} app */
function stream(app) {
  return { path: ["events"], query: { app }, onEvent: take };
}

/**
 * Of an application that is gone only the rest can be followed.
 * @param {import("./api.js").Problem} problem
 */
function onRefused(problem) {
  if (problem.status !== 404) return;
  store.isGone.value = true;
  live.follow(stream(null));
}

/**
 * @param {string} event
 * @param {any} data
 */
function take(event, data) {
  // The console of a run ends with it, and comes back with another address if at all: the end stays on the page.
  if (event === "end") return store.isOfRuns.peek();
  if (event === "begin" || event === "tick") setConsoleTime(data.now_ms);
  if (event === "begin" && !data.continues) beginList();
  else if (event === "snapshot") takeSnapshot(data);
  else if (event === "cluster") store.cluster.value = data;
  else if (event === "connection") store.connection.value = data;
  else if (event === "application") {
    named.add(data.app_id);
    store.applications.value = new Map(store.applications.peek() ?? []).set(data.app_id, data);
  } else if (event === "gone") {
    keepApplications((id) => id !== data.app_id);
    if (data.app_id === followed) store.isGone.value = true;
  } else if (event === "tick") store.tick(data.now_ms);
  return false;
}

/** @param {import("./store.js").Snapshot} data */
function takeSnapshot(data) {
  const { app_id, name } = data.application;
  if (app_id !== followed && name !== followed) return;
  const before = store.snapshot.peek()?.application;
  store.take(data);
  if (before == null) void Promise.all([fetchGraph(app_id), beginCurves(app_id)]);
  else if (before.graph_version !== data.application.graph_version) void fetchGraph(app_id);
}

/** The applications of an earlier stream stay until this one has had the time to name them. */
function beginList() {
  const mine = new Set();
  named = mine;
  setTimeout(() => {
    if (named === mine && live.state.peek() === "live") keepApplications((id) => mine.has(id));
  }, WHOLE_LIST_MS);
}

/** @param {(id: string) => boolean} isKept */
function keepApplications(isKept) {
  store.applications.value = new Map([...(store.applications.peek() ?? [])].filter(([id]) => isKept(id)));
}

/** @param {string} app */
function isStillShown(app) {
  return store.snapshot.peek()?.application.app_id === app;
}

/** @param {string} app */
async function beginCurves(app) {
  try {
    const history = await fetchHistory(app);
    if (isStillShown(app)) store.begin(history);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    // Without a history curves begin with what this page sees.
  }
}

/** @param {string} app */
async function fetchGraph(app) {
  if (store.isCustom.peek()) {
    store.graph.value = null;
    return;
  }
  try {
    const found = await get(["applications", app, "graph"]);
    if (isStillShown(app)) store.graph.value = found;
  } catch {
    // An application whose code cannot be planned here has no graph: the page of the graph is left out.
    if (isStillShown(app)) store.graph.value = null;
  }
}
