// @ts-check
// A figure as a table of numbers: what "View as table" shows and what a CSV file holds.

import { make } from "./elements.js";

const TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u1: Uint8Array };
const MOST_ROWS = 200;

/** @typedef {number | string} X */
/** @typedef {{heads: string[], rows: [X, (number | null | undefined)[]][]}} Table rows by rising x, or by name */

/** A typed array as the server sends it, or a plain one. @param {any} values @returns {ArrayLike<number>} */
function plain(values) {
  if (!values?.bdata) return values ?? [];
  const bytes = Uint8Array.from(atob(values.bdata), (letter) => letter.charCodeAt(0));
  const kind = /** @type {keyof typeof TYPES} */ (values.dtype);
  return new TYPES[kind](bytes.buffer);
}

/** Every column of a figure over its x. @param {any} figure @param {string} x its label @returns {Table} */
export function tabulate(figure, x) {
  const columns = figure.data.flatMap(columnsOf);
  /** @type {Map<X, (number | null | undefined)[]>} */
  const rows = new Map();
  columns.forEach((/** @type {any} */ column, /** @type {number} */ place) => {
    for (let index = 0; index < column.x.length; index++) {
      const row = rows.get(column.x[index]) ?? new Array(columns.length).fill(undefined);
      row[place] = column.y[index];
      rows.set(column.x[index], row);
    }
  });
  return { heads: [x, ...columns.map((/** @type {any} */ column) => column.name)], rows: [...rows].sort(([a], [b]) => (typeof a === "number" ? a - Number(b) : a.localeCompare(String(b), "en", { numeric: true }))) };
}

/** A heat map has a column for each of its rows; a treemap has one column of sizes. @param {any} trace */
function columnsOf(trace) {
  if (trace.uid === "marks") return [];
  if (trace.type === "treemap") return [{ name: trace.meta, x: trace.labels, y: trace.values }];
  const x = plain(trace.x);
  if (trace.type !== "heatmap") return [{ name: trace.meta ?? trace.name, x, y: plain(trace.y) }];
  // If rows are grouped, the first list names the groups.
  const names = Array.isArray(trace.y[0]) ? trace.y[1] : trace.y;
  return names.map((/** @type {string} */ name, /** @type {number} */ at) => ({ name, x, y: trace.z[at] }));
}

/** The newest rows first, as an element. @param {Table} table */
export function draw({ heads, rows }) {
  const last = rows.slice(-MOST_ROWS).reverse();
  const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col", class: "number" }, name)));
  const body = last.map(([x, values]) =>
    make("tr", {}, make("th", { scope: "row", class: "number" }, short(x)), ...values.map((value) => make("td", { class: "number" }, short(value))))
  );
  const caption = make("caption", { class: "muted" }, rows.length > MOST_ROWS ? `The last ${MOST_ROWS} of ${rows.length} points` : `All ${rows.length} points`);
  return make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...body));
}

/** @param {Table} table */
export function csv({ heads, rows }) {
  const quoted = heads.map((name) => `"${name.replaceAll('"', '""')}"`).join(",");
  return [quoted, ...rows.map(([x, values]) => [typeof x === "string" ? `"${x.replaceAll('"', '""')}"` : x, ...values.map((value) => value ?? "")].join(","))].join("\r\n") + "\r\n";
}

/** At most four digits, with a typographic minus sign. @param {X | null | undefined} value */
function short(value) {
  if (typeof value === "string") return value;
  if (value === undefined || value === null || Number.isNaN(value)) return "\u2013";
  return String(Number.isInteger(value) ? value : Number(value.toPrecision(4))).replaceAll("-", "\u2212");
}
