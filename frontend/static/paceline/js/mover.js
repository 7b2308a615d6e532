// @ts-check
// Moves the window of iterations that a figure shows: earlier, later, or following the newest. The window is kept in the URL.

import { keep, kept } from "./address.js";
import { make } from "./elements.js";
import { isShortcut } from "./shortcuts.js";

/** The zoom factor of each step. */
const ZOOM = 2;

/** @typedef {{first: number, last: number, newest: number}} Window */

export class Mover {
  /** @param {string} name of the figure @param {() => void} moved @param {(times: number | null) => void} zoom null: all */
  constructor(name, moved, zoom) {
    this.key = `first-${name}`;
    this.moved = moved;
    this.zoom = zoom;
    const from = kept(this.key);
    /** The first iteration to show; null follows the newest. @type {number | null} */
    this.first = /^\d+$/.test(from) ? Number(from) : null;
    /** @type {Window | undefined} */
    this.window = undefined;
    this.earlier = this.button("Earlier", () => this.by(-1));
    this.later = this.button("Later", () => this.by(1));
    this.follow = this.button("Follow", () => this.to(this.first === null ? (this.window?.first ?? null) : null));
    this.element = make("div", { class: "mover", role: "group", "aria-label": "Iterations shown" }, this.earlier, this.later, this.follow);
    document.addEventListener("keydown", (event) => this.press(event));
  }

  /** @param {string} word @param {() => void} act */
  button(word, act) {
    const button = /** @type {HTMLButtonElement} */ (make("button", { type: "button", class: "button" }, word));
    button.addEventListener("click", act);
    return button;
  }

  query() {
    return this.first === null ? {} : { first: String(this.first) };
  }

  /** The window that the figure shows now. @param {Window | undefined} shown */
  take(shown) {
    this.window = shown;
    this.earlier.disabled = !shown || shown.first === 0;
    this.later.disabled = !shown || shown.last >= shown.newest;
    this.follow.setAttribute("aria-pressed", String(this.first === null));
  }

  /** @param {number} direction by how many windows */
  by(direction) {
    if (!this.window) return;
    const width = this.window.last - this.window.first + 1;
    this.to(Math.max(0, this.window.first + direction * width));
  }

  /** @param {number | null} first */
  to(first) {
    this.first = first;
    keep(this.key, first === null ? "" : String(first));
    this.moved();
  }

  /** A and D move, W and S zoom, Esc shows all, F follows; ignored while typing. @param {KeyboardEvent} event */
  press(event) {
    if (!isShortcut(event)) return;
    if (event.key === "a") this.by(-1);
    else if (event.key === "d") this.by(1);
    else if (event.key === "f") this.to(null);
    else if (event.key === "w") this.zoom(1 / ZOOM);
    else if (event.key === "s") this.zoom(ZOOM);
    else if (event.key === "Escape") this.zoom(null);
  }
}
