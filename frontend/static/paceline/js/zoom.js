// @ts-check
// The stretch of a figure's horizontal axis that somebody looks at: the address keeps it, so that a link shows the same.

import { keep, kept } from "./address.js";

/** Decimals of the ends that the address keeps. */
const DIGITS = 4;

/** One stretch for each axis that a figure can have. @param {string} name @param {string} axis */
function key(name, axis) {
  return `range-${name}${axis ? `-${axis}` : ""}`;
}

/** @param {string} name of the figure @param {string} axis @returns {number[] | null} */
export function zoomed(name, axis) {
  const ends = kept(key(name, axis)).split(",");
  const range = ends.filter((end) => end.trim()).map(Number);
  return range.length === 2 && range.every(Number.isFinite) && range[0] < range[1] ? range : null;
}

/** Dates are not kept: what is seen of them moves on. @param {string} name of the figure @param {string} axis @param {any[] | null} range null: all there is */
export function keepZoom(name, axis, range) {
  keep(key(name, axis), range?.every(Number.isFinite) ? range.map((end) => Number(end.toFixed(DIGITS))).join(",") : "");
}
