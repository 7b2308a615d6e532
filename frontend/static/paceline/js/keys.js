// @ts-check
// Keyboard: ? help, / search, g o | g j | g w | g s | g i | g a to go, Space to pause. Ignored while typing; can be turned off (WCAG 2.1.4).

import { KEYS, keysAreOn } from "./preferences.js";
import { openSearch } from "./search.js";
import { focused, isShortcut } from "./shortcuts.js";

const PLACES = { o: "/", j: "/jobs/", w: "/workers/", s: "/system/", i: "/simulations/", a: "/alerts/" };
const SEQUENCE_MS = 1_500;

let goSince = 0;

/** @param {KeyboardEvent} event */
function press(event) {
  if (!isShortcut(event)) return;
  const place = PLACES[/** @type {keyof typeof PLACES} */ (event.key)];
  if (place && Date.now() - goSince < SEQUENCE_MS) {
    location.assign(place);
    return;
  }
  goSince = event.key === "g" ? Date.now() : 0;
  if (event.key === "?") /** @type {HTMLDialogElement | null} */ (document.getElementById("help"))?.showModal();
  else if (event.key === "/") {
    event.preventDefault();
    openSearch();
  } else if (event.key === " " && !focused(event)?.closest("button, a, summary")) {
    event.preventDefault();
    document.dispatchEvent(new CustomEvent("paceline:pause"));
  }
}

document.addEventListener("keydown", press);

const box = document.getElementById("keys-on");
if (box instanceof HTMLInputElement) {
  box.checked = keysAreOn();
  box.addEventListener("change", () => {
    try {
      localStorage.setItem(KEYS, box.checked ? "on" : "off");
    } catch {
      // Storage may be blocked; then the setting does not change.
    }
  });
}
