// @ts-check
// Who is signed in, and what they may see and do. The server decides; pages leave out what it would refuse.

import { address, call, get, post, signedOut } from "./api.js";
import { computed, signal } from "./dom.js";

/** @typedef {import("./answers").SessionState} SessionState */

const ROLES = ["nobody", "guest", "user", "admin"];

export const session = signal(/** @type {SessionState | null} */ (null));

/** Whether pages can be shown to whoever is here. */
export const isSignedIn = computed(() => !signedOut.value && session.value != null && session.value.role !== "nobody");

/**
 * Whether the role of whoever is here is at least this one.
 * @param {"guest" | "user" | "admin"} role
 */
export function may(role) {
  return ROLES.indexOf(session.value?.role ?? "nobody") >= ROLES.indexOf(role);
}

/** Asks who is signed in. */
export async function askSession() {
  session.value = await get(["session"]);
  signedOut.value = session.value?.role === "nobody";
}

/**
 * Signs in; throws the server's problem when the name and the password do not belong together.
 * @param {string} name
 * @param {string} password
 */
export async function signIn(name, password) {
  session.value = await post(["session"], { name, password });
  signedOut.value = false;
}

export async function signOut() {
  session.value = await call("DELETE", address(["session"]), {});
  signedOut.value = true;
}
