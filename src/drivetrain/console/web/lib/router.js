// @ts-check
// Where one is: the part of the address after "#", so that links, the back button and bookmarks work below any
// path that a proxy serves the console at.

import { computed, signal } from "./dom.js";

const address = signal(location.hash);
addEventListener("hashchange", () => (address.value = location.hash));

/**
 * The steps of the path, decoded, and the query.
 * @typedef {{path: string[], query: URLSearchParams}} Route
 */

export const route = computed(() => parsed(address.value));

/**
 * @param {string} hash
 * @returns {Route}
 */
export function parsed(hash) {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

/** @param {string} step */
function decoded(step) {
  try {
    return decodeURIComponent(step);
  } catch {
    return step; // somebody typed a lone "%"
  }
}

/**
 * The address of a page, for `href`.
 * @param {string[]} path
 * @param {Record<string, string | null | undefined>} [query]
 */
export function link(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const asked = given.length ? `?${new URLSearchParams(/** @type {string[][]} */ (given))}` : "";
  return `#/${path.map(encodeURIComponent).join("/")}${asked}`;
}

/**
 * Changes the query of this page without a new entry in the browser's history: filters, not places.
 * @param {Record<string, string | null | undefined>} change
 */
export function ask(change) {
  const { path, query } = parsed(location.hash);
  const next = { ...Object.fromEntries(query), ...change };
  history.replaceState(null, "", link(path, next));
  address.value = location.hash;
}

/** @param {string} href */
export function go(href) {
  location.hash = href.replace(/^#/, "");
}
