// @ts-check
// The log viewer: while Follow is on, it scrolls to the newest line; scrolling up pauses it.

import { keep, kept } from "./address.js";
import { isShortcut } from "./shortcuts.js";

/** Distance from the end, in pixels, within which a list counts as scrolled to the end. */
const NEAR = 24;

const box = /** @type {HTMLInputElement | null} */ (document.getElementById("log-follow"));
let top_ = 0;

function list() {
  return document.getElementById("log-list");
}

/** @param {boolean} on */
function follow(on) {
  if (!box) return;
  box.checked = on;
  keep("follow", on ? "" : "off");
  place();
}

/** After new lines were drawn: restore the position, or scroll to the newest. */
function place() {
  const lines = list();
  if (lines) lines.scrollTop = box?.checked ? lines.scrollHeight : top_;
}

function scrolled() {
  const lines = list();
  if (!lines || !box) return;
  top_ = lines.scrollTop;
  const atEnd = lines.scrollHeight - lines.clientHeight - top_ <= NEAR;
  if (box.checked !== atEnd) {
    box.checked = atEnd;
    keep("follow", atEnd ? "" : "off");
  }
}

if (box) {
  box.checked = kept("follow") !== "off";
  box.addEventListener("change", () => follow(box.checked));
  document.addEventListener("wheel", () => requestAnimationFrame(scrolled), { passive: true });
  document.addEventListener("touchend", () => requestAnimationFrame(scrolled), { passive: true });
  document.addEventListener("keyup", (event) => list()?.contains(/** @type {Node} */ (event.target)) && scrolled());
  document.addEventListener("keydown", (event) => isShortcut(event) && event.key === "f" && follow(!box.checked));
  document.body.addEventListener("htmx:oobAfterSwap", place);
  place();
}
