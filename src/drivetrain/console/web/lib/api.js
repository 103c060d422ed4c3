// @ts-check
// Requests to the server: JSON in and out, errors as problem details (RFC 9457) with our codes and remedies.

import { signal } from "./dom.js";

/** The REST interface, beside this page, whatever path a proxy serves both at. */
const ROOT = new URL("api/v1/", document.baseURI);
const LIMIT_MS = 30_000;

/** True once the server has asked for a sign-in. */
export const signedOut = signal(false);

/** An error that the server described, or that it could not be reached. */
export class Problem extends Error {
  /**
   * @param {number} status 0 when there was no answer
   * @param {Partial<import("./answers").Problem>} said
   */
  constructor(status, said) {
    super(said.detail ?? said.title ?? `status ${status}`);
    Object.assign(this, said);
    this.status = status;
    this.title = said.title ?? "The server refused this";
  }

  /** Whether the same request will be refused again: not what is too much at once, or came too early or too slowly. */
  get isForGood() {
    return this.status >= 400 && this.status < 500 && ![408, 425, 429].includes(this.status);
  }
}

/**
 * The address of a resource: steps are escaped, what is null in the query is left out.
 * @param {string[]} path
 * @param {Record<string, string | number | boolean | null | undefined>} [query]
 */
export function address(path, query = {}) {
  const url = new URL(path.map(encodeURIComponent).join("/"), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value != null && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/**
 * @param {string[]} path
 * @param {Record<string, string | number | boolean | null | undefined>} [query]
 * @param {AbortSignal} [signal]
 * @param {number} [limit_ms]
 * @returns {Promise<any>}
 */
export function get(path, query, signal, limit_ms) {
  return call("GET", address(path, query), { signal, limit_ms });
}

/**
 * @param {string[]} path
 * @param {unknown} [body] what is sent as JSON
 * @param {Record<string, string>} [headers]
 * @returns {Promise<any>}
 */
export function post(path, body, headers = {}) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  return call("POST", address(path), { body: sent, headers: { "Content-Type": "application/json", ...headers } });
}

/**
 * @param {string} method
 * @param {URL} url
 * @param {{body?: BodyInit, headers?: Record<string, string>, signal?: AbortSignal, limit_ms?: number}} given
 * @returns {Promise<any>}
 */
export async function call(method, url, { body, headers = {}, signal, limit_ms = LIMIT_MS }) {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), limit_ms);
  signal?.addEventListener("abort", () => limit.abort());
  try {
    const answer = await fetch(url, {
      method,
      body,
      headers: { Accept: "application/json", ...headers },
      credentials: "same-origin",
      signal: limit.signal,
    });
    if (!answer.ok) throw await described(answer);
    return answer.status === 204 ? null : await answer.json();
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    throw unreachable();
  } finally {
    clearTimeout(timer);
  }
}

/** The problem that there is no answer. */
export function unreachable() {
  return new Problem(0, {
    title: "The console does not answer",
    remedy: "Check that it runs: drivetrain console. This page tries again when the connection is back.",
  });
}

/**
 * @param {Response} answer
 * @returns {Promise<Problem>}
 */
export async function described(answer) {
  if (answer.status === 401) signedOut.value = true;
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // A proxy's own page of an error: its status is all that we know.
  }
  return new Problem(answer.status, said);
}
