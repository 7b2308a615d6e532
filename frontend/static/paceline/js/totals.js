// @ts-check
// Under a timeline: the time of each worker in each phase, within the zoomed range.

import { make } from "./elements.js";

export class Totals {
  constructor() {
    this.element = make("div", { class: "totals", hidden: "", tabindex: "0", role: "region", "aria-label": "Totals" });
    /** @type {any[]} bars: each has x (lengths), base (starts) and y (workers) */
    this.bars = [];
  }

  /** @param {any[]} data traces of the figure; only bars are counted */
  take(data) {
    this.bars = data.filter((trace) => trace.type === "bar");
    this.show([-Infinity, Infinity]);
  }

  /** @param {number[] | undefined} range of the horizontal axis, in its unit, milliseconds */
  show(range) {
    this.element.toggleAttribute("hidden", this.bars.length === 0);
    if (!this.bars.length || !range) return;
    const sums = new Map();
    this.bars.forEach((bar, phase) => {
      for (let at = 0; at < bar.x.length; at++) {
        const within = Math.min(bar.base[at] + bar.x[at], range[1]) - Math.max(bar.base[at], range[0]);
        const row = sums.get(bar.y[at]) ?? new Array(this.bars.length).fill(0);
        row[phase] += Math.max(0, within);
        sums.set(bar.y[at], row);
      }
    });
    const rows = [...sums].sort(([a], [b]) => Number(a.slice(1)) - Number(b.slice(1)));
    const everybody = rows.reduce((all, [, row]) => all.map((sum, at) => sum + row[at]), new Array(this.bars.length).fill(0));
    const head = make("tr", {}, make("th", { scope: "col" }, "Totals"), ...this.bars.map((bar) => make("th", { scope: "col", class: "number" }, bar.name)));
    const line = (/** @type {string} */ name, /** @type {number[]} */ row) =>
      make("tr", {}, make("th", { scope: "row" }, name), ...row.map((sum) => make("td", { class: "number" }, `${Math.round(sum)} ms`)));
    const body = make("tbody", {}, ...rows.map(([name, row]) => line(name, row)), line("All", everybody));
    this.element.replaceChildren(make("table", {}, make("thead", {}, head), body));
  }
}
