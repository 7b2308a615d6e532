// @ts-check
// How all charts of a page are looked at: which workers, how smooth, with or without decisions, following or not. The
// address holds it all, so that a link shows the same.

import { toast } from "./actions.js";
import { keysAreOn } from "./preferences.js";

const form = /** @type {HTMLFormElement | null} */ (document.getElementById("chart-view"));
const picker = document.getElementById("worker-menu");
const search = /** @type {HTMLInputElement | null} */ (document.getElementById("worker-search"));
const RANKS = /^\d+(,\d+)*$/;

function address() {
  return new URLSearchParams(location.search);
}

/** What figures are asked for besides their own switches. @returns {Record<string, string>} */
export function viewQuery() {
  if (!form) return {};
  const found = address();
  /** @type {Record<string, string>} */
  const query = {};
  const ranks = found.get("ranks") ?? "";
  if (RANKS.test(ranks)) query.ranks = ranks;
  for (const name of ["top", "smooth"]) if (/^\d{1,3}$/.test(found.get(name) ?? "")) query[name] = found.get(name) ?? "";
  if (found.get("marks") === "off") query.marks = "off";
  return query;
}

/** Whether new data move the horizontal axis. */
export function following() {
  return address().get("follow") !== "off";
}

/** @param {boolean} on */
export function follow(on) {
  if (!form || on === following()) return;
  put("follow", on ? "" : "off");
  show();
  if (on) document.dispatchEvent(new CustomEvent("paceline:follow"));
}

/** @param {string} name @param {string} value nothing, where it is as at first */
function put(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value);
  else url.searchParams.delete(name);
  history.replaceState(history.state, "", url);
}

function moved() {
  document.dispatchEvent(new CustomEvent("paceline:view"));
}

/** The form says what the address says. */
function show() {
  if (!form) return;
  const found = address();
  for (const name of ["ranks", "top", "smooth"]) /** @type {HTMLInputElement} */ (form.elements.namedItem(name)).value = found.get(name) ?? "";
  const ranks = (found.get("ranks") ?? "").split(",");
  for (const box of picks()) box.checked = ranks.includes(box.value);
  for (const name of ["marks", "follow"]) /** @type {HTMLInputElement} */ (form.elements.namedItem(name)).checked = found.get(name) !== "off";
}

/** @returns {HTMLInputElement[]} */
function picks() {
  return [...(picker?.querySelectorAll("#worker-picks input") ?? [])].map((each) => /** @type {HTMLInputElement} */ (each));
}

/** Only those whose rank or machine has what is searched for. */
function narrow() {
  const wanted = (search?.value ?? "").trim().toLowerCase();
  for (const box of picks()) {
    const label = box.closest("label");
    if (label) label.hidden = !(label.textContent ?? "").toLowerCase().includes(wanted);
  }
  document.getElementById("worker-none")?.toggleAttribute("hidden", picks().some((box) => !box.closest("label")?.hidden));
}

/** @param {HTMLInputElement} box that was ticked or not */
function pick(box) {
  const chosen = picks().filter((each) => each.checked);
  const most = Number(form?.dataset.most ?? chosen.length);
  if (chosen.length > most) {
    box.checked = false;
    return toast(`At most ${most} workers fit a chart; untick another one first.`, true);
  }
  return look(chosen.map((each) => each.value).join(","));
}

/** @param {string} ranks nothing: all of them */
function look(ranks) {
  put("ranks", ranks);
  put("top", "");
  show();
  moved();
}

/** The next worker, or the one before, by itself. @param {number} step */
function next(step) {
  const roster = Number(form?.dataset.roster ?? 0);
  const now = address().get("ranks") ?? "";
  const rank = /^\d+$/.test(now) ? (Number(now) + step + roster) % roster : step > 0 ? 0 : roster - 1;
  look(String(rank));
}

form?.addEventListener("submit", (event) => event.preventDefault());
form?.addEventListener("change", (event) => {
  const input = /** @type {HTMLInputElement} */ (event.target);
  if (input === search) return undefined;
  if (input.closest("#worker-picks")) return pick(input);
  if (input.name === "follow") return follow(input.checked);
  if (input.type === "checkbox") put(input.name, input.checked ? "" : "off");
  else put(input.name, input.value.replaceAll(/[\sw]/g, ""));
  // A choice by number and one by rank exclude each other: the later one holds.
  if (input.name === "top") put("ranks", "");
  if (input.name === "ranks") put("top", "");
  show();
  return moved();
});
search?.addEventListener("input", narrow);
document.getElementById("worker-clear")?.addEventListener("click", () => look(""));
document.addEventListener("keydown", (event) => {
  const typing = /** @type {Element} */ (event.target)?.closest?.("input, select, textarea, dialog, [contenteditable]");
  if (!form || typing || event.ctrlKey || event.metaKey || event.altKey || !keysAreOn()) return;
  if (event.key === "f") follow(!following());
  else if (event.key === "]") next(1);
  else if (event.key === "[") next(-1);
});
show();
