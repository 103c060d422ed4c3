// @ts-check
// The one live stream of this tab, and the time: that of this machine, and that of the console.
//
// Whatever breaks, the last figures stay on the page, with their age above them.

import { Connection } from "./connection.js";
import { computed, signal } from "./dom.js";

export const live = new Connection();

/** Now, every second, while the page is looked at. */
export const now = signal(Date.now());
/** How far the console's clock is ahead of this machine's: what it reports has its times. */
const ahead = signal(0);
/** Now, by the console's clock. */
export const consoleNow = computed(() => now.value + ahead.value);

setInterval(look, 1000);
document.addEventListener("visibilitychange", look);

function look() {
  if (!document.hidden) now.value = Date.now();
}

/**
 * The console has just sent its time.
 * @param {number} now_ms
 */
export function setConsoleTime(now_ms) {
  ahead.value = now_ms - Date.now();
}
