// @ts-check
// Which keys are meant for the page.

import { keysAreOn } from "./preferences.js";

/** Whether a key is pressed for the page, not for what is typed in, nor for the browser. @param {KeyboardEvent} event */
export function isShortcut(event) {
  const typing = focused(event)?.closest("input, select, textarea, dialog, [contenteditable]");
  return keysAreOn() && !typing && !event.ctrlKey && !event.metaKey && !event.altKey;
}

/** In a dialog that was just closed nothing has the focus, though the browser may still say so. @param {KeyboardEvent} event */
export function focused(event) {
  const target = event.target instanceof Element ? event.target : null;
  return target?.closest("dialog:not([open])") ? null : target;
}
