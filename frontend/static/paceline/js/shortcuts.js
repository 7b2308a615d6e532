// @ts-check
// Distinguishes page shortcuts from other key presses.

import { keysAreOn } from "./preferences.js";

/** Whether a key press is a page shortcut: not typed into a field, nor a browser shortcut. @param {KeyboardEvent} event */
export function isShortcut(event) {
  const typing = focused(event)?.closest("input, select, textarea, dialog, [contenteditable]");
  return keysAreOn() && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
}

/** The focused element; none within a dialog that was just closed, which browsers may still report. @param {KeyboardEvent} event */
export function focused(event) {
  const target = event.target instanceof Element ? event.target : null;
  return target?.closest("dialog:not([open])") ? null : target;
}
