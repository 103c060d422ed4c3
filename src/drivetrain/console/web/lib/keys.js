// @ts-check
// Keyboard shortcuts: "g" and a letter go to a page, "/" to the search, "?" shows them all.
//
// They are off while one types, and with modifier keys, which belong to the browser.

import { useEffect, useRef } from "./dom.js";

const PAIR_MS = 1500;

/**
 * @param {{places: {key?: string, href: string}[], onHelp: () => void}} given
 */
export function useKeys({ places, onHelp }) {
  const began = useRef(-PAIR_MS); // when "g" was pressed; a live page is drawn again between two keys
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (document.querySelector("dialog[open]")) return;
      const place = event.timeStamp - began.current < PAIR_MS ? places.find((one) => one.key === event.key) : undefined;
      began.current = !place && event.key === "g" ? event.timeStamp : -PAIR_MS;
      if (place) location.hash = place.href;
      else if (event.key === "?") onHelp();
      else if (event.key === "/") /** @type {HTMLElement | null} */ (document.querySelector("[data-search]"))?.focus();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  });
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}
