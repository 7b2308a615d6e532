// @ts-check
// The range and the pointer position shared by all charts of a page. The range is kept in the URL with
// its axis; charts with another axis convert it by the job's clock.

import { keep, kept } from "./address.js";

/** Decimals of the range's ends in the URL. */
const DIGITS = 4;
/** Axes that measure a job's progress; other charts do not share the range. */
const ALONG = ["iteration", "time", "samples", "update", "epoch", "date"];

/** @typedef {Record<string, number[]>} Clock the same points in time on each axis */
/** @typedef {number | string} End */

const url = document.getElementById("chart-view")?.dataset.clock;
/** @type {Clock | null} */
let clock = null;
let loading = false;
let failed = false;

/** Whether charts with this axis share the range. @param {string} axis */
export function isAlong(axis) {
  return ALONG.includes(axis);
}

/** The range in the URL. @returns {{axis: string, ends: End[]} | {last: number} | null} */
export function pageRange() {
  const [axis, text = ""] = split(kept("range"));
  if (axis === "last") return Number(text) > 0 ? { last: Number(text) } : null;
  const ends = text.split(",");
  if (ends.length !== 2 || !isAlong(axis)) return null;
  if (axis === "date") return { axis, ends };
  const numbers = ends.map(Number);
  return numbers.every(Number.isFinite) && numbers[0] < numbers[1] ? { axis, ends: numbers } : null;
}

/** Split at the first colon: dates contain further ones. @param {string} text */
function split(text) {
  const at = text.indexOf(":");
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

/** The range for a chart with this axis; null: everything. @param {string} axis @returns {End[] | null} */
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

/** Set the range of all charts. @param {string} axis @param {any[] | null} ends null: everything */
export function setRange(axis, ends) {
  const text = ends?.map((end) => (typeof end === "number" ? Number(end.toFixed(DIGITS)) : end)).join(",");
  keep("range", text ? `${axis}:${text}` : "");
  document.dispatchEvent(new CustomEvent("paceline:range"));
}

/** The same point on another axis; null if it is not known yet. @param {number} value @param {string} from @param {string} to @returns {number | null} */
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

/** Called when data have changed: a range that follows them needs the newest clock. */
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
