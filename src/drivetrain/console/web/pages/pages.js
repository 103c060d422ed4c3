// @ts-check
// The pages of an application, in the order of the navigation. A page is there once the server has what it shows.

import { may } from "../lib/session.js";
import { graph, isCustom, isOfRuns, isOver, job } from "../lib/store.js";
import { ApplicationPage } from "./application.js";
import { BatchesPage } from "./batches.js";
import { ChannelsPage } from "./channels.js";
import { CheckpointsPage } from "./checkpoints.js";
import { ClocksPage } from "./clocks.js";
import { DeadLettersPage } from "./dead_letters.js";
import { ErrorsPage } from "./errors.js";
import { GraphPage } from "./graph.js";
import { LateMessagesPage } from "./late_messages.js";
import { LogsPage } from "./logs.js";
import { StatesPage } from "./states.js";
import { ThreadsPage } from "./threads.js";
import { VersionsPage } from "./versions.js";

/**
 * @typedef {{id: string, label: string, key: string, page: () => unknown, isThere?: () => boolean,
 *   count?: () => number, bad?: () => boolean}} Page
 */

/** @type {Page[]} */
export const PAGES = [
  { id: "", label: "Application", key: "a", page: ApplicationPage },
  { id: "graph", label: "Graph", key: "g", page: GraphPage, isThere: () => graph.value !== null },
  { id: "clocks", label: "Clocks", key: "c", page: ClocksPage, isThere: hasStreamJob },
  {
    id: "channels",
    label: "Channels",
    key: "h",
    page: ChannelsPage,
    isThere: hasStreamJob,
    count: () => job.value?.channels.filter((one) => one.blocked_ms > 0).length ?? 0,
    bad: () => true,
  },
  { id: "batches", label: "Batches", key: "b", page: BatchesPage, isThere: hasStreamJob },
  {
    id: "errors",
    label: "Errors and restarts",
    key: "e",
    page: ErrorsPage,
    isThere: () => hasJob() && may("user"),
    count: () => (job.value ? job.value.errors.length || (job.value.error ? 1 : 0) : 0),
    bad: () => job.value?.error != null || (!isOver.value && (job.value?.fragments.some((one) => one.error) ?? false)),
  },
  {
    id: "dead-letters",
    label: "Dead letters",
    key: "d",
    page: DeadLettersPage,
    isThere: () => may("user") && !isCustom.value,
    count: () => job.value?.processors.reduce((sum, one) => sum + one.dead_letters, 0) ?? 0,
    bad: () => true,
  },
  {
    id: "late-messages",
    label: "Late messages",
    key: "z",
    page: LateMessagesPage,
    isThere: () => may("user") && !isCustom.value,
    count: () => job.value?.processors.reduce((sum, one) => sum + one.late, 0) ?? 0,
    bad: () => true,
  },
  { id: "states", label: "States", key: "t", page: StatesPage, isThere: () => may("user") && !isCustom.value },
  {
    id: "checkpoints",
    label: "Checkpoints",
    key: "k",
    page: CheckpointsPage,
    isThere: () => job.value?.checkpoints != null,
    count: () => job.value?.checkpoints?.failures.length ?? 0,
    bad: () => true,
  },
  { id: "versions", label: "Versions", key: "v", page: VersionsPage, isThere: () => may("user") && !isCustom.value },
  {
    id: "threads",
    label: "Threads",
    key: "r",
    page: ThreadsPage,
    isThere: () => may("user") && hasStreamJob() && !isOver.value,
  },
  { id: "logs", label: "Logs", key: "o", page: LogsPage, isThere: () => may("user") && !isOfRuns.value },
];

function hasJob() {
  return job.value != null;
}

function hasStreamJob() {
  return hasJob() && !isCustom.value;
}
