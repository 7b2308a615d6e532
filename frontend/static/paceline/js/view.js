// @ts-check
// View options of all charts of a page: workers, smoothing, decision marks, following new data. The
// URL holds them all, so that a link shows the same view.

import { toast } from "./actions.js";
import { keep, kept } from "./address.js";
import { pageRange, setRange } from "./range.js";
import { isShortcut } from "./shortcuts.js";

const form = /** @type {HTMLFormElement | null} */ (document.getElementById("chart-view"));
const picker = document.getElementById("worker-menu");
const search = /** @type {HTMLInputElement | null} */ (document.getElementById("worker-search"));
const RANKS = /^\d+(,\d+)*$/;

/** Query parameters of all figures, in addition to their own switches. @returns {Record<string, string>} */
export function viewQuery() {
  if (!form) return {};
  /** @type {Record<string, string>} */
  const query = {};
  const ranks = kept("ranks");
  if (RANKS.test(ranks)) query.ranks = ranks;
  for (const name of ["top", "smooth"]) if (/^\d{1,3}$/.test(kept(name))) query[name] = kept(name);
  if (kept("marks") === "off") query.marks = "off";
  return query;
}

/** Whether new data move the horizontal axis. */
export function following() {
  return kept("follow") !== "off";
}

/** @param {boolean} on */
export function follow(on) {
  if (!form || on === following()) return;
  keep("follow", on ? "" : "off");
  const range = pageRange();
  // Following new data and a fixed range exclude each other.
  if (on && range && "ends" in range) setRange("", null);
  show();
  if (on) document.dispatchEvent(new CustomEvent("paceline:follow"));
}

function moved() {
  document.dispatchEvent(new CustomEvent("paceline:view"));
}

/** Update the form from the URL. */
function show() {
  if (!form) return;
  for (const name of ["ranks", "top", "smooth", "axis"]) /** @type {HTMLInputElement} */ (form.elements.namedItem(name)).value = kept(name);
  showRange();
  const ranks = kept("ranks").split(",");
  for (const box of picks()) box.checked = ranks.includes(box.value);
  for (const name of ["marks", "follow"]) /** @type {HTMLInputElement} */ (form.elements.namedItem(name)).checked = kept(name) !== "off";
}

/** A range drawn in a chart is offered as a choice while it applies. */
function showRange() {
  const select = /** @type {HTMLSelectElement | null} */ (document.getElementById("chart-range"));
  const range = pageRange();
  if (!select) return;
  select.querySelector("[data-drawn]")?.remove();
  if (range && "ends" in range) {
    const option = new Option(`${UNITS[range.axis] ?? range.axis} ${range.ends.map((end) => (typeof end === "number" ? Number(end.toPrecision(4)) : end)).join(" to ")}`, kept("range"));
    option.dataset.drawn = "";
    select.append(option);
  }
  select.value = range ? kept("range") : "";
}

/** @type {Record<string, string>} */
const UNITS = { iteration: "iterations", time: "seconds", samples: "samples", update: "updates", epoch: "epochs" };

/** @returns {HTMLInputElement[]} */
function picks() {
  return [...(picker?.querySelectorAll("#worker-picks input") ?? [])].map((each) => /** @type {HTMLInputElement} */ (each));
}

/** Show only workers with a rank or machine that matches the search. */
function narrow() {
  const sought = (search?.value ?? "").trim().toLowerCase();
  for (const box of picks()) {
    const label = box.closest("label");
    if (label) label.hidden = !(label.textContent ?? "").toLowerCase().includes(sought);
  }
  document.getElementById("worker-none")?.toggleAttribute("hidden", picks().some((box) => !box.closest("label")?.hidden));
}

/** @param {HTMLInputElement} box that was ticked or not */
function pick(box) {
  const chosen = picks().filter((each) => each.checked);
  const most = Number(form?.dataset.most ?? chosen.length);
  if (chosen.length > most) {
    box.checked = false;
    return toast(`A chart shows at most ${most} workers. Deselect one first.`, true);
  }
  return look(chosen.map((each) => each.value).join(","));
}

/** @param {string} value as in the URL */
function range(value) {
  const [axis, ends] = value.split(":");
  setRange(axis, ends ? ends.split(",") : null);
  follow(true);
}

/** @param {string} value empty: each chart's own */
function axis(value) {
  keep("axis", value);
  document.dispatchEvent(new CustomEvent("paceline:axis", { detail: value }));
}

/** @param {string} ranks empty: all of them */
function look(ranks) {
  keep("ranks", ranks);
  keep("top", "");
  show();
  moved();
}

/** Show only the next or the previous worker. @param {number} step */
function next(step) {
  const roster = Number(form?.dataset.roster ?? 0);
  const now = kept("ranks");
  const rank = /^\d+$/.test(now) ? (Number(now) + step + roster) % roster : step > 0 ? 0 : roster - 1;
  look(String(rank));
}

form?.addEventListener("submit", (event) => event.preventDefault());
form?.addEventListener("change", (event) => {
  const input = /** @type {HTMLInputElement} */ (event.target);
  if (input === search) return undefined;
  if (input.closest("#worker-picks")) return pick(input);
  if (input.name === "follow") return follow(input.checked);
  if (input.name === "range") return range(input.value);
  if (input.name === "axis") return axis(input.value);
  if (input.type === "checkbox") keep(input.name, input.checked ? "" : "off");
  else keep(input.name, input.value.replaceAll(/[\sw]/g, ""));
  // A choice by count and one by rank exclude each other: the later one applies.
  if (input.name === "top") keep("ranks", "");
  if (input.name === "ranks") keep("top", "");
  show();
  return moved();
});
document.addEventListener("paceline:range", showRange);
search?.addEventListener("input", narrow);
document.getElementById("worker-clear")?.addEventListener("click", () => look(""));
document.addEventListener("keydown", (event) => {
  if (!form || !isShortcut(event)) return;
  if (event.key === "f") follow(!following());
  else if (event.key === "]") next(1);
  else if (event.key === "[") next(-1);
});
show();
