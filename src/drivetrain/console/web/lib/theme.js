// @ts-check
// Dark or light: as the system is set, unless chosen here.

import { signal } from "./dom.js";

const KEY = "drivetrain.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** @typedef {"system" | "light" | "dark"} Choice */

/** @type {import("../vendor/signals.js").Signal<Choice>} */
export const choice = signal(stored());
/** @type {import("../vendor/signals.js").Signal<"light" | "dark">} What is shown; charts draw with its colours. */
export const theme = signal(shown());

dark.addEventListener("change", apply);
apply();

/** @param {Choice} next */
export function choose(next) {
  choice.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // A browser that stores nothing asks its system again next time.
  }
  apply();
}

function apply() {
  document.documentElement.dataset.theme = shown();
  theme.value = shown();
}

/** @returns {"light" | "dark"} */
function shown() {
  return choice.peek() === "system"
    ? dark.matches
      ? "dark"
      : "light"
    : /** @type {"light" | "dark"} */ (choice.peek());
}

/** @returns {Choice} */
function stored() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system";
  }
}
