// The console's answers as types. Written by scripts/console_types.py; do not edit.

export interface ApplicationSummary {
  app_id: string;
  name: string;
  state: string;
  epoch: number;
  submitted_ms: number;
  ended_ms: number | null;
  worker: string | null;
  why: string | null;
  clock_ms: number | null;
  graph_version: number;
  priority: string;
  file: string;
}

export interface ApplicationPage {
  applications: ApplicationSummary[];
  next: string | null;
}

export interface ApplicationSnapshot {
  now_ms: number;
  application: ApplicationSummary;
  app_master: string | null;
  diagnosis: Diagnosis;
  job: Job | null;
}

export interface ProcessorChange {
  processor: string;
  fate: string;
  mark: string;
  why: string;
  before: string | null;
  after: string | null;
}

export interface PlannedChange {
  against: number;
  can_be_made: boolean;
  verdict: string;
  changes: ProcessorChange[];
  graph: ComparedGraph;
}

export interface ConfigurationChange {
  values: Record<string, string>;
  restore: string[];
}

export interface ChangedKey {
  key: string;
  before: string;
  after: string;
}

export interface ConfigurationChanged {
  changed: ChangedKey[];
}

export interface Master {
  address: string;
  leads: boolean;
  term: number;
  silent_ms: number | null;
}

export interface Worker {
  worker_id: string;
  name: string;
  host: string;
  slots: number;
  free_slots: number;
  registered_ms: number;
  cpu: number;
  memory_free_bytes: number;
  launched: string[];
}

export interface Masters {
  masters: Master[];
}

export interface Workers {
  workers: Worker[];
  local: string[] | null;
}

export interface Cluster {
  version: string;
  shows: "cluster" | "runs";
  now_ms: number;
  leader: string | null;
  term: number;
  masters: Master[];
  workers: number;
  slots: number;
  free_slots: number;
  applications: Record<string, number>;
}

export interface ConfigurationValue {
  key: string;
  value: string;
  default: string;
  origin: string;
  description: string;
}

export interface Configuration {
  values: ConfigurationValue[];
}

export interface DeadLetter {
  fragment: string;
  processor: string;
  message: string;
  error: string;
  is_cut: boolean;
  file: string | null;
  line: number | null;
  timestamp_ms: number | null;
  stored_ms: number;
}

export interface DeadLetters {
  letters: DeadLetter[];
  next: string | null;
  count: number;
  dropped: number;
}

export interface Finding {
  rule: string;
  severity: "critical" | "warning" | "note" | "none";
  subject: string;
  what: string;
  remedy: string;
  chain: string[];
  evidence: string[];
  since_ms: number | null;
}

export interface Diagnosis {
  in_short: string;
  severity: "critical" | "warning" | "note" | "none";
  findings: Finding[];
}

export interface BeginEvent {
  now_ms: number;
  continues: boolean;
}

export interface ConnectionEvent {
  is_connected: boolean;
  since_ms: number;
  problem: string | null;
  remedy: string | null;
}

export interface TickEvent {
  now_ms: number;
}

export interface GoneEvent {
  app_id: string;
}

export interface EndEvent {
  problem: string | null;
  remedy: string | null;
}

export interface Phases {
  waiting_ms: number;
  source_ms: number;
  planning_ms: number;
  computing_ms: number;
  sink_ms: number;
  channel_ms: number;
  log_ms: number;
  other_ms: number;
}

export interface Batch {
  batch_id: number;
  messages: number;
  phases: Phases;
  sinks_ms: Record<string, number>;
  python_ms: number;
  python_longest_ms: number;
  python_tasks: number;
  state_ms: number;
}

export interface BatchTotals {
  batches: number;
  phases: Phases;
  python_ms: number;
  state_ms: number;
  aligning_ms: number;
  blocked_ms: Record<string, number>;
}

export interface FragmentFigures {
  last_batch: Batch | null;
  totals: BatchTotals;
  cores: number;
  trigger_ms: number | null;
  state_rows: number | null;
  state_bytes: number | null;
  state_partitions: number | null;
  latency_p50_ms: number | null;
  latency_p99_ms: number | null;
  latency_batches: number;
  blocked_now_ms: number;
  alignment_txid: number | null;
  alignment_ms: number;
}

export interface PhaseHistory {
  waiting_ms: (number | null)[];
  source_ms: (number | null)[];
  planning_ms: (number | null)[];
  computing_ms: (number | null)[];
  sink_ms: (number | null)[];
  channel_ms: (number | null)[];
  log_ms: (number | null)[];
  other_ms: (number | null)[];
}

export interface FragmentHistory {
  attempt: (number | null)[];
  batches: (number | null)[];
  messages: (number | null)[];
  batch_ms: (number | null)[];
  lag_messages: (number | null)[];
  clock_ms: (number | null)[];
  clock_delay_ms: (number | null)[];
  state_rows: (number | null)[];
  state_bytes: (number | null)[];
  latency_p50_ms: (number | null)[];
  latency_p99_ms: (number | null)[];
  blocked_ms: (number | null)[];
  phases: PhaseHistory;
}

export interface History {
  app_id: string;
  at_ms: number[];
  clock_ms: (number | null)[];
  late: number[];
  dead_letters: number[];
  disk_free_bytes: (number | null)[];
  fragments: Record<string, FragmentHistory>;
}

export interface ApplicationSetting {
  name: string;
  kind: string;
  value: string | null;
  is_required: boolean;
  description: string;
}

export interface PlannedUpload {
  name: string;
  settings: ApplicationSetting[];
  graph: Graph | null;
}

export interface LateMessage {
  fragment: string;
  processor: string;
  message: string;
  is_cut: boolean;
  timestamp_ms: number;
  clock_ms: number;
  batch: number;
  stored_ms: number;
}

export interface LateMessages {
  samples: LateMessage[];
  next: string | null;
  late: Record<string, number> | null;
}

export interface Operation {
  operation_id: string;
  kind: "kill" | "restart" | "replay" | "savepoint" | "change" | "rollback" | "add-worker" | "remove-worker";
  app_id: string | null;
  state: "running" | "succeeded" | "failed";
  asked_by: string;
  started_ms: number;
  ended_ms: number | null;
  result: Record<string, string>;
  problem: Problem | null;
}

export interface Operations {
  operations: Operation[];
}

export interface Replay {
  replay_from: string | number;
}

export interface Savepoint {
  name: string | null;
  timeout: string;
}

export interface Submitted {
  app_id: string;
  name: string;
}

export interface LogPiece {
  process: string;
  worker: string;
  next_offset: number;
  text: string;
}

export interface Logs {
  pieces: LogPiece[];
}

export interface Threads {
  executor: string | null;
  python: string;
  java: string;
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  instance: string;
  code: string;
  where?: string | null;
  expected?: string | null;
  got?: string | null;
  remedy?: string | null;
  user_traceback?: string | null;
}

export interface ErrorReport {
  code: string;
  what: string;
  where: string | null;
  expected: string | null;
  got: string | null;
  remedy: string | null;
  user_traceback: string | null;
}

export interface Fragment {
  fragment: string;
  state: string;
  attempt: number;
  executor: string | null;
  worker: string | null;
  batch_id: number;
  batch_ms: number;
  messages: number;
  messages_per_s: number;
  lag_messages: number | null;
  clock_ms: number | null;
  clock_delay_ms: number | null;
  stalled_ms: number;
  waiting_for: string | null;
  blocked_by: string | null;
  silent_partitions: number;
  error: ErrorReport | null;
  figures: FragmentFigures;
}

export interface Channel {
  channel: string;
  producer: string;
  subscriber: string;
  clock_ms: number | null;
  lag_messages: number;
  lag_bytes: number;
  lag_ms: number | null;
  unacknowledged_messages: number;
  unacknowledged_bytes: number;
  window_messages: number;
  window_bytes: number;
  blocked_ms: number;
  losses: number;
  replays: number;
  kept_bytes: number;
}

export interface Processor {
  processor: string;
  messages_in: number;
  messages_out: number;
  late: number;
  dead_letters: number;
  in_per_s: number | null;
  out_per_s: number | null;
}

export interface Executor {
  executor: string;
  worker: string | null;
  host: string | null;
  pid: number | null;
  slots: number;
  state: string;
  spark_master: string | null;
}

export interface Output {
  processor: string;
  target: string;
  messages: number;
  guarantee: string;
}

export interface CompletedCheckpoint {
  txid: number;
  as_of_ms: number | null;
  started_ms: number;
  duration_ms: number;
  size_bytes: number;
  fragment_ms: Record<string, number>;
}

export interface FailedCheckpoint {
  txid: number;
  action: string | null;
  at_ms: number;
  fragments: string[];
  reason: string;
}

export interface Checkpoints {
  now_ms: number;
  txid: number;
  phase: string;
  is_recovering: boolean;
  running_ms: number | null;
  completed: number;
  failed: number;
  last: CompletedCheckpoint | null;
  failures: FailedCheckpoint[];
}

export interface Job {
  state: string;
  epoch: number;
  started_ms: number;
  now_ms: number;
  clock_ms: number | null;
  fraction: number | null;
  waiting_for: string | null;
  change: string | null;
  life: number;
  replay_from_ms: number | null;
  skipped: number;
  lost: number;
  fragments: Fragment[];
  channels: Channel[];
  processors: Processor[];
  executors: Executor[];
  outputs: Output[];
  accumulators: Record<string, number | number>;
  checkpoints: Checkpoints | null;
  error: ErrorReport | null;
  errors: ErrorReport[];
  printed: string;
}

export interface Fragments {
  fragments: Fragment[];
}

export interface Channels {
  channels: Channel[];
}

export interface FragmentClock {
  fragment: string;
  clock_ms: number | null;
  clock_delay_ms: number | null;
  holds_minimum: boolean;
  stalled_ms: number;
  waiting_for: string | null;
  silent_partitions: number;
}

export interface Clocks {
  clock_ms: number | null;
  fragments: FragmentClock[];
  channels: Record<string, number | null>;
}

export interface Errors {
  error: ErrorReport | null;
  errors: ErrorReport[];
}

export interface CheckpointReport {
  checkpoints: Checkpoints | null;
}

export interface SignIn {
  name: string;
  password: string;
}

export interface SessionState {
  name: string;
  role: string;
  means: string;
  takes_passwords: boolean;
}

export interface StatefulProcessors {
  processors: string[];
}

export interface StateEntry {
  key: string;
  value: string;
  start_ms: number | null;
  end_ms: number | null;
  is_cut: boolean;
}

export interface StateEntries {
  processor: string;
  at_ms: number | null;
  clock_ms: number | null;
  count: number;
  states: StateEntry[];
  first_ms: number | null;
  last_ms: number | null;
  step_ms: number | null;
}

export interface Version {
  number: number;
  made_at_ms: number;
  made_by: string;
  made_how: string;
  follows: number | null;
  is_in_force: boolean;
  trial: string | null;
  outcome: string | null;
  in_words: string;
  ended_at_ms: number | null;
  failed_fragment: string | null;
  why: string | null;
  processors: number;
  changes: Record<string, string>;
}

export interface Versions {
  versions: Version[];
}

export interface VersionProcessor {
  processor: string;
  text: string;
  inputs: string[];
  fragment: string | null;
  line: string;
}

export interface VersionGraph {
  number: number;
  processors: VersionProcessor[];
}

export interface ProcessorDifference {
  processor: string;
  mark: string;
  why: string;
  before: string | null;
  after: string | null;
  fragment_before: string | null;
  fragment_after: string | null;
  line: string;
}

export interface VersionDifference {
  number: number;
  against: number;
  processors: ProcessorDifference[];
  graph: ComparedGraph;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface GraphFragment {
  fragment: string;
  heading: string;
  box: Box;
  panels: Record<string, Box>;
  stateful: string | null;
  is_realtime: boolean;
  obstacles: string[];
}

export interface GraphProcessor {
  processor: string;
  fragment: string;
  kind: string;
  how: string;
  why: string;
  text: string;
  line: string;
  place: string;
  columns: string | null;
  label: string;
  details: string[];
  box: Box;
}

export interface GraphChannel {
  channel: string;
  producer: string;
  producer_fragment: string;
  subscriber_fragment: string;
  why: string;
  label: string;
  box: Box;
}

export interface GraphLine {
  source: string | null;
  target: string | null;
  channel: string | null;
  path: string;
}

export interface GraphSink {
  processor: string;
  target: string;
  guarantee: string;
  why: string;
}

export interface Graph {
  application: string;
  guarantee: string;
  delivery: string;
  latency: string;
  is_bounded: boolean;
  width: number;
  height: number;
  fragments: GraphFragment[];
  processors: GraphProcessor[];
  channels: GraphChannel[];
  lines: GraphLine[];
  sinks: GraphSink[];
}

export interface ComparedFragment {
  fragment: string;
  mark: string;
  heading: string;
  box: Box;
  panels: Record<string, Box>;
  stateful: string | null;
}

export interface ComparedBox {
  processor: string;
  fragment: string;
  mark: string;
  says: string;
  label: string;
  details: string[];
  line: string;
  box: Box;
}

export interface ComparedChannel {
  channel: string;
  mark: string;
  label: string;
  box: Box;
}

export interface ComparedLine {
  mark: string;
  channel: string | null;
  path: string;
}

export interface ComparedGraph {
  application: string;
  width: number;
  height: number;
  fragments: ComparedFragment[];
  processors: ComparedBox[];
  channels: ComparedChannel[];
  lines: ComparedLine[];
}
