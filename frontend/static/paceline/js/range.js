// @ts-check
// The one range that all charts of a page show, and the one place that a pointer marks on all of them. It is kept in the address with
// the axis on which it was chosen; charts with another axis show the same stretch of the job, by its clock.

import { keep, kept } from "./address.js";

/** Decimals of the ends that the address keeps. */
const DIGITS = 4;
/** Axes along which a job goes on; other charts show something else. */
const ALONG = ["iteration", "time", "samples", "update", "epoch", "date"];

/** @typedef {Record<string, number[]>} Clock the same moments on each axis */
/** @typedef {number | string} End */

const url = document.getElementById("chart-view")?.dataset.clock;
/** @type {Clock | null} */
let clock = null;
let loading = false;
let failed = false;

/** Whether charts with this axis take part. @param {string} axis */
export function isAlong(axis) {
  return ALONG.includes(axis);
}

/** The range as the address has it. @returns {{axis: string, ends: End[]} | {last: number} | null} */
export function pageRange() {
  const [axis, text = ""] = split(kept("range"));
  if (axis === "last") return Number(text) > 0 ? { last: Number(text) } : null;
  const ends = text.split(",");
  if (ends.length !== 2 || !isAlong(axis)) return null;
  if (axis === "date") return { axis, ends };
  const numbers = ends.map(Number);
  return numbers.every(Number.isFinite) && numbers[0] < numbers[1] ? { axis, ends: numbers } : null;
}

/** At the first colon: dates have more of them. @param {string} text */
function split(text) {
  const at = text.indexOf(":");
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** What a chart with this axis is to show; null: all there is. @param {string} axis @returns {End[] | null} */
export function rangeOn(axis) {
  const range = pageRange();
  if (!range || !isAlong(axis)) return null;
  if ("last" in range) {
    const end = onAxis(Number.POSITIVE_INFINITY, "time", "time");
    const ends = end === null ? null : [Math.max(0, end - range.last), end].map((each) => onAxis(each, "time", axis));
    return ends && ends[0] !== null && ends[1] !== null && ends[0] < ends[1] ? /** @type {number[]} */ (ends) : null;
  }
  if (range.axis === axis) return range.ends;
  if (axis === "date" || range.axis === "date") return null;
  const ends = range.ends.map((end) => onAxis(Number(end), range.axis, axis));
  return ends[0] !== null && ends[1] !== null && ends[0] < ends[1] ? /** @type {number[]} */ (ends) : null;
}

/** All charts show this. @param {string} axis @param {any[] | null} ends null: all there is */
export function setRange(axis, ends) {
  const text = ends?.map((end) => (typeof end === "number" ? Number(end.toFixed(DIGITS)) : end)).join(",");
  keep("range", text ? `${axis}:${text}` : "");
  document.dispatchEvent(new CustomEvent("paceline:range"));
}

/** The same moment on another axis; null where that is not known (yet). @param {number} value @param {string} from @param {string} to @returns {number | null} */
export function onAxis(value, from, to) {
  if (from === to && Number.isFinite(value)) return value;
  if (!clock) void load();
  const [x, y] = [clock?.[from], clock?.[to]];
  if (!x?.length || !y?.length) return null;
  const above = x.findIndex((each) => each >= value);
  if (above === 0) return y[0];
  if (above < 0) return y[y.length - 1];
  const part = (value - x[above - 1]) / (x[above] - x[above - 1] || 1);
  return y[above - 1] + part * (y[above] - y[above - 1]);
}

/** Called when data have moved: a range that follows them needs the newest clock. */
export function clockMoved() {
  const range = pageRange();
  failed = false;
  if (clock && range && "last" in range) void load();
}

async function load() {
  if (loading || failed || !url) return;
  loading = true;
  const response = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" }).catch(() => null);
  if (response?.ok) clock = await response.json();
  failed = !response?.ok;
  loading = false;
  if (clock && pageRange()) document.dispatchEvent(new CustomEvent("paceline:range"));
}
