// @ts-check
// Numbers as people read them; the same as the command line's (`core.figures`).

const FINAL_CLOCK_MS = 253402214400000;
const NOTHING = "–";

/** @typedef {number | null | undefined} Figure */

/**
 * 1234567 is "1,234,567"; what is not known is "–".
 * @param {Figure} count
 */
export function showCount(count) {
  return count == null ? NOTHING : Math.round(count).toLocaleString("en");
}

/**
 * "1 batch", "1,200 batches".
 * @param {number} count
 * @param {string} one
 * @param {string} [several]
 */
export function showCounted(count, one, several) {
  return `${showCount(count)} ${count === 1 ? one : (several ?? `${one}s`)}`;
}

/**
 * Three digits and a unit: 1234567 is "1.23 M".
 * @param {number} value
 */
export function showShort(value) {
  for (const [factor, unit] of /** @type {[number, string][]} */ ([
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ])) {
    if (value >= factor) return `${digits(value / factor)} ${unit}`;
  }
  return digits(value);
}

/**
 * A rate: 1234567 is "1.23 M/s".
 * @param {Figure} perSecond
 */
export function showRate(perSecond) {
  return perSecond == null ? NOTHING : `${showShort(perSecond)}/s`;
}

/**
 * An amount of bytes: 12345678 is "12.3 MB".
 * @param {Figure} bytes
 */
export function showSize(bytes) {
  if (bytes == null) return NOTHING;
  for (const [factor, unit] of /** @type {[number, string][]} */ ([
    [1e12, "TB"],
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
  ])) {
    if (bytes >= factor) return `${digits(bytes / factor)} ${unit}`;
  }
  return `${bytes} B`;
}

/**
 * A duration in at most two units: 90500 is "1 min 30 s".
 * @param {Figure} ms
 */
export function showSpan(ms) {
  if (ms == null) return NOTHING;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/**
 * Median and 99th percentile of latency: "400 ms, 1.2 s".
 * @param {{latency_p50_ms: number | null, latency_p99_ms: number | null}} of
 */
export function showLatency(of) {
  const show = (/** @type {Figure} */ ms) => (ms != null && ms < 0 ? `-${showSpan(-ms)}` : showSpan(ms));
  return of.latency_p99_ms == null ? NOTHING : `${show(of.latency_p50_ms)}, ${show(of.latency_p99_ms)}`;
}

/**
 * An application time in UTC; before any message "–", after the last "end".
 * @param {Figure} ms
 */
export function showClock(ms) {
  if (ms == null) return NOTHING;
  if (ms >= FINAL_CLOCK_MS) return "end";
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? NOTHING : at.toISOString().slice(0, 19).replace("T", " ");
}

/**
 * The day of an application time in UTC, which is shown below its time of day; null where there is none.
 * @param {Figure} ms
 */
export function showDay(ms) {
  return ms == null || isEnd(ms) ? null : showClock(ms).slice(0, 10);
}

/**
 * The time of day in UTC.
 * @param {Figure} ms
 */
export function showTime(ms) {
  return ms == null ? NOTHING : showClock(ms).slice(11) || showClock(ms);
}

/**
 * A share of one in whole percent, rounded down.
 * @param {Figure} fraction
 */
export function showShare(fraction) {
  return fraction == null ? NOTHING : `${Math.floor(fraction * 100)} %`;
}

/**
 * Whether a clock has reached the end of all input.
 * @param {Figure} ms
 */
export function isEnd(ms) {
  return ms != null && ms >= FINAL_CLOCK_MS;
}

/** @param {number} value */
function digits(value) {
  return String(Number(value.toPrecision(3)));
}
