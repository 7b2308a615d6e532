// @ts-check
// <plotly-figure src name heading switches plotly>: fetches a figure, draws it while it is in view, and shows its
// caption. Zoom survives new data because uirevision is constant; an unchanged figure is not redrawn.

import { make } from "./elements.js";
import { exportMenu } from "./exports.js";
import { Mover } from "./mover.js";
import { draw as drawTable, tabulate } from "./tables.js";
import { Totals } from "./totals.js";
import { clockMoved, isAlong, onAxis, rangeOn, setRange } from "./range.js";
import { follow, following, viewQuery } from "./view.js";

const SEGMENTS = 3;
/** @typedef {{name: string, title: string, values: Record<string, string>}} Switch */
/** @typedef {{name: string, title: string, example: string}} Entry */

/** @type {Promise<any> | undefined} */
let loading;

/** Plotly, loaded once, when the first figure comes into view, and after a failure with the next one. @param {string} url */
function plotly(url) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => resolve(/** @type {any} */ (window).Plotly);
    script.onerror = () => {
      loading = undefined;
      reject(new Error("failed to load the chart library"));
    };
    document.head.append(script);
  });
  return loading;
}

/** The server's validation error, or that there was no response. @param {Response} response */
async function reasonOf(response) {
  const problem = response.status === 400 ? await response.json().catch(() => null) : null;
  const wrong = problem?.errors?.map((/** @type {any} */ each) => `${each.field}: found ${JSON.stringify(each.found)}, expected ${each.expected}`).join("; ");
  const trace = response.headers.get("X-Trace-Id");
  return wrong || problem?.detail || `Failed to load this figure (status ${response.status}${trace ? `, trace id ${trace}` : ""}); it loads again when its data changes.`;
}

class PlotlyFigure extends HTMLElement {
  connectedCallback() {
    if (this.built) return;
    this.built = true;
    this.etag = "";
    /** @type {any} */
    this.figure = null;
    this.dirty = true;
    this.busy = false;
    this.visible = false;
    this.left = false;
    /** Resolves when no drag is in progress on the plot. */
    this.dragged = Promise.resolve();
    /** Aborts requests in flight when the page is left. */
    this.leaving = new AbortController();
    /** @type {Switch[]} */
    this.switches = JSON.parse(this.getAttribute("switches") ?? "[]");
    this.choices = Object.fromEntries(this.switches.map((each) => [each.name, this.chosen(each)]));
    /** @type {Entry[]} */
    this.entries = JSON.parse(this.getAttribute("entries") ?? "[]");
    /** @type {Record<string, string>} */
    this.typed = Object.fromEntries(this.entries.map((each) => [each.name, this.entered(each)]).filter(([, value]) => value));
    this.mover = this.hasAttribute("windowed") ? new Mover(this.getAttribute("name") ?? "", () => this.refresh(), (times) => this.scale(times)) : null;
    this.build();
    document.addEventListener("paceline:theme", () => this.refresh());
    document.addEventListener("paceline:view", () => this.refresh());
    document.addEventListener("paceline:follow", () => this.letGo());
    document.addEventListener("paceline:range", () => this.ranged());
    document.addEventListener("paceline:axis", (event) => this.useAxis(/** @type {CustomEvent} */ (event).detail));
    new IntersectionObserver((entries) => this.seen(entries[entries.length - 1].isIntersecting), {
      rootMargin: "200px",
    }).observe(this);
  }

  /** The option in the URL, otherwise the first. @param {Switch} each */
  chosen(each) {
    const all = new URLSearchParams(location.search).get("axis") ?? "";
    if (each.name === "x" && all in each.values) return all;
    const found = new URLSearchParams(location.search).get(`${each.name}-${this.getAttribute("name")}`) ?? "";
    return found in each.values ? found : Object.keys(each.values)[0];
  }

  /** The typed value in the URL. @param {Entry} each */
  entered(each) {
    return new URLSearchParams(location.search).get(`${each.name}-${this.getAttribute("name")}`) ?? "";
  }

  build() {
    const name = this.getAttribute("name") ?? "";
    const title = make("h2", { id: `title-${name}` }, this.getAttribute("heading") ?? name);
    this.badge = make("span", { class: "figure-badge" });
    this.toggle = /** @type {HTMLButtonElement} */ (
      make("button", { type: "button", class: "button button-quiet", "aria-pressed": "false", hidden: "" }, "View as table")
    );
    this.toggle.addEventListener("click", () => this.showTable(this.toggle.getAttribute("aria-pressed") !== "true"));
    this.plot = make("div", { class: "plot plot-waiting", role: "img", "aria-labelledby": `title-${name} caption-${name}` });
    for (const start of ["mousedown", "touchstart"]) this.plot.addEventListener(start, () => this.hold(), { capture: true, passive: true });
    this.table = make("div", { class: "figure-table", role: "region", tabindex: "0", hidden: "", "aria-labelledby": `title-${name}` });
    this.nothing = make("p", { class: "figure-empty", hidden: "" });
    this.caption = make("p", { class: "figure-caption", id: `caption-${name}` });
    this.error = make("p", { class: "figure-error", hidden: "" });
    this.totals = new Totals();
    this.exports = exportMenu(/** @type {any} */ (this));
    this.exports.hidden = true;
    const controls = this.switches.map((each) => (Object.keys(each.values).length > SEGMENTS ? this.list(each) : this.segments(each)));
    controls.push(...this.entries.map((each) => this.box(each)));
    const head = make("div", { class: "figure-head" }, title, this.badge, ...controls, ...(this.mover ? [this.mover.element] : []), this.toggle, this.exports);
    this.append(head, this.plot, this.table, this.nothing, this.caption, this.totals.element, this.error);
  }

  /** @param {Switch} each */
  segments(each) {
    const set = make("fieldset", { class: "segmented" }, make("legend", { class: "visually-hidden" }, each.title));
    for (const [value, word] of Object.entries(each.values)) {
      const input = /** @type {HTMLInputElement} */ (make("input", { type: "radio", name: `${each.name}-${this.getAttribute("name")}`, value }));
      input.checked = value === this.choices[each.name];
      input.addEventListener("change", () => this.choose(each, value));
      set.append(make("label", {}, input, make("span", {}, word)));
    }
    return set;
  }

  /** @param {Switch} each */
  list(each) {
    const select = /** @type {HTMLSelectElement} */ (make("select", { "aria-label": each.title }));
    for (const [value, word] of Object.entries(each.values)) select.append(new Option(word, value, false, value === this.choices[each.name]));
    select.addEventListener("change", () => this.choose(each, select.value));
    return select;
  }

  /** @param {Entry} each */
  box(each) {
    const input = /** @type {HTMLInputElement} */ (make("input", { class: "narrow", placeholder: each.example, inputmode: "decimal", autocomplete: "off", "aria-label": each.title }));
    input.value = this.typed[each.name] ?? "";
    input.addEventListener("change", () => this.enter(each, input.value.trim()));
    return make("label", { class: "figure-entry" }, make("span", { class: "muted" }, each.title), input);
  }

  /** @param {Entry} each @param {string} value empty: none */
  enter(each, value) {
    if (value) this.typed[each.name] = value;
    else delete this.typed[each.name];
    this.keepChoice(each.name, value);
  }

  /** @param {Switch} each @param {string} value */
  choose(each, value) {
    this.choices[each.name] = value;
    this.keepChoice(each.name, value);
  }

  /** @param {string} name @param {string} value */
  keepChoice(name, value) {
    const url = new URL(location.href);
    const key = `${name}-${this.getAttribute("name")}`;
    if (value) url.searchParams.set(key, value);
    else url.searchParams.delete(key);
    history.replaceState(history.state, "", url);
    this.refresh();
  }

  /** @param {boolean} visible */
  seen(visible) {
    this.visible = visible;
    if (visible && this.dirty) void this.load();
    else if (!visible && this.drawn) this.unmount();
  }

  /** Called by the page's websocket when this figure's data have changed. */
  refresh() {
    clockMoved();
    this.dirty = true;
    if (this.visible) void this.load();
  }

  /** The page is being left: stop fetching. */
  leave() {
    this.left = true;
    this.leaving.abort();
  }

  async load() {
    if (this.busy || this.left) return;
    this.busy = true;
    while (this.dirty && this.visible && !this.left) {
      this.dirty = false;
      try {
        await this.fetch();
      } catch (problem) {
        if (!this.left) this.fail(problem instanceof Error ? problem.message : String(problem));
      }
    }
    this.busy = false;
  }

  async fetch() {
    const theme = document.documentElement.dataset.theme ?? "light";
    const query = new URLSearchParams({ theme, ...this.choices, ...this.typed, ...viewQuery(), ...this.mover?.query() });
    const fixed = this.getAttribute("fixed");
    const url = `${this.getAttribute("src")}?${fixed ? `${fixed}&` : ""}${query}`;
    const known = this.figure && this.etag.startsWith(`${url} `) ? this.etag.slice(url.length + 1) : "";
    /** @type {Record<string, string>} */
    const headers = { Accept: "application/json" };
    if (known) headers["If-None-Match"] = known;
    // The library is large: load it while the server draws.
    this.library().catch(() => {});
    // With an entity tag of its own the element revalidates itself; otherwise the browser revalidates its cached copy.
    const cache = known ? "no-store" : "no-cache";
    const response = await fetch(url, { headers, cache, credentials: "same-origin", signal: this.leaving.signal });
    if (response.status === 304) {
      this.error?.toggleAttribute("hidden", true);
      if (!this.drawn) await this.draw();
      return;
    }
    if (!response.ok) throw new Error(await reasonOf(response));
    this.figure = await response.json();
    this.etag = `${url} ${response.headers.get("ETag") ?? ""}`;
    await this.draw();
  }

  async draw() {
    if (!this.plot || !this.nothing || !this.caption || !this.badge || !this.error) return;
    const { data, layout } = this.figure;
    const meta = layout.meta ?? {};
    this.error.hidden = true;
    this.nothing.hidden = data.length > 0;
    this.nothing.textContent = meta.empty;
    this.caption.textContent = meta.caption;
    this.badge.textContent = meta.sampling;
    // A timeline's table is the totals below it.
    this.toggle?.toggleAttribute("hidden", data.length === 0 || meta.totals === true);
    this.exports?.toggleAttribute("hidden", data.length === 0);
    this.plot.hidden = data.length === 0 || this.tabular();
    this.plot.classList.remove("plot-waiting");
    if (this.tabular()) this.fillTable();
    this.mover?.take(meta.window);
    this.totals?.take(meta.totals ? data : []);
    if (!this.plot.hidden) await this.mount(data, layout);
  }

  /** @param {any[]} data @param {any} layout */
  async mount(data, layout) {
    const library = await this.library();
    // Redrawing a plot would cancel a drag in progress.
    await this.dragged;
    // The figure's height is its minimum; the page may give it more.
    this.plot?.style.setProperty("min-height", layout.height ? `${layout.height}px` : "");
    const range = this.stretch();
    const still = range ? { xaxis: { ...layout.xaxis, range, autorange: false } } : {};
    await library.react(this.plot, data, { ...layout, ...still, height: undefined, autosize: true }, { responsive: true, displayModeBar: false, displaylogo: false });
    if (!this.drawn) this.listen(this.plot);
    this.drawn = true;
    this.axis = this.choices?.x;
  }

  /** A drag begins: the plot is not redrawn until it has ended and Plotly has handled it. */
  hold() {
    this.dragged = new Promise((resolve) => {
      const ends = ["mouseup", "touchend", "touchcancel", "blur"];
      const end = () => {
        for (const name of ends) window.removeEventListener(name, end, true);
        setTimeout(resolve);
      };
      for (const name of ends) window.addEventListener(name, end, true);
    });
  }

  /** The name of the horizontal axis; empty if it is not a kind of time. */
  along() {
    if (this.mover) return "";
    if (this.figure?.layout.xaxis?.type === "date") return "date";
    const name = this.choices?.x ?? this.getAttribute("axis") ?? "";
    return isAlong(name) ? name : "";
  }

  /** The range of the horizontal axis: the page's range, otherwise the current one; null if it follows the data. */
  stretch() {
    const range = rangeOn(this.along());
    if (range || !this.drawn || this.axis !== this.choices?.x) return range;
    return following() ? null : /** @type {any} */ (this.plot)._fullLayout?.xaxis?.range?.slice();
  }

  /** Apply the page's new range. */
  ranged() {
    const axis = this.along();
    if (!this.drawn || !axis) return;
    const range = rangeOn(axis);
    void /** @type {any} */ (window).Plotly.relayout(this.plot, range ? { "xaxis.range": range } : { "xaxis.autorange": true });
  }

  /** Use this axis on all charts of the page; empty: each chart's own. @param {string} axis */
  useAxis(axis) {
    const own = this.switches?.find((each) => each.name === "x");
    if (!own || !this.choices) return;
    const value = axis in own.values ? axis : this.chosen(own);
    if (this.choices.x === value) return;
    this.choices.x = value;
    for (const input of this.querySelectorAll(`input[name="x-${this.getAttribute("name")}"]`)) /** @type {HTMLInputElement} */ (input).checked = /** @type {HTMLInputElement} */ (input).value === value;
    const select = /** @type {HTMLSelectElement | null} */ (this.querySelector(`select[aria-label="${own.title}"]`));
    if (select) select.value = value;
    this.refresh();
  }

  /** Plotly drops its listeners whenever the figure is unmounted. @param {any} plot */
  listen(plot) {
    plot.on("plotly_relayout", (/** @type {any} */ event) => {
      this.totals?.show(plot._fullLayout.xaxis?.range);
      // A zoomed range must not move.
      if ("xaxis.range[0]" in event) {
        if (this.along()) setRange(this.along(), [event["xaxis.range[0]"], event["xaxis.range[1]"]]);
        follow(false);
      } else if (event["xaxis.autorange"] && rangeOn(this.along())) {
        setRange("", null);
        follow(true);
      }
    });
    plot.on("plotly_hover", (/** @type {any} */ event) => this.point(event.xvals?.[0] ?? event.points[0]?.x));
    plot.on("plotly_unhover", () => this.point(null));
    plot.on("plotly_click", (/** @type {any} */ event) => {
      const follow = this.figure.layout.meta?.follow;
      if (follow) location.assign(follow.replace("{x}", String(event.points[0].x)));
    });
  }

  /** Mark the pointer's position on the horizontal axis in all other charts. @param {any} x null: no position */
  point(x) {
    const axis = this.along();
    if (!axis) return;
    for (const other of document.querySelectorAll("plotly-figure")) if (other !== this) /** @type {PlotlyFigure} */ (other).mark(axis, x);
  }

  /** @param {string} axis @param {number | string | null} x */
  mark(axis, x) {
    const plot = /** @type {any} */ (this.plot);
    const own = this.along();
    const across = this.drawn && own && (axis === "date") === (own === "date") ? plot._fullLayout?.xaxis : null;
    const there = x === null || !across ? null : axis === "date" ? across.d2l(x) : onAxis(Number(x), axis, own);
    const at = there === null ? Number.NaN : across.l2p(there);
    const within = at >= 0 && at <= across?._length;
    this.hair?.toggleAttribute("hidden", !within);
    if (!within) return;
    this.hair ??= this.appendChild(make("div", { class: "crosshair", "aria-hidden": "true" }));
    this.hair.style.cssText = `left:${plot.offsetLeft + across._offset + at}px;top:${plot.offsetTop}px;height:${plot.offsetHeight}px`;
  }

  /** Zoom around the middle by this factor. @param {number | null} times null: show everything */
  scale(times) {
    if (!this.drawn) return;
    const [low, high] = /** @type {any} */ (this.plot)._fullLayout.xaxis.range;
    const [middle, half] = [(low + high) / 2, ((high - low) / 2) * (times ?? 1)];
    const shown = times === null ? { "xaxis.autorange": true } : { "xaxis.range[0]": Math.max(0, middle - half), "xaxis.range[1]": middle + half };
    void /** @type {any} */ (window).Plotly.relayout(this.plot, shown);
  }

  /** Follow new data again: reset the axis to the range of the data. */
  letGo() {
    if (this.drawn && !rangeOn(this.along())) void /** @type {any} */ (window).Plotly.relayout(this.plot, { "xaxis.autorange": true });
    this.refresh();
  }

  /** Unmount a figure that is out of view; it is redrawn from its data when it comes back. */
  unmount() {
    if (!this.plot || !this.drawn) return;
    this.plot.style.minHeight = `${this.plot.offsetHeight}px`;
    /** @type {any} */ (window).Plotly.purge(this.plot);
    this.drawn = false;
    this.dirty = true;
  }

  /** @param {string} reason */
  fail(reason) {
    if (!this.error) return;
    this.error.textContent = reason;
    this.error.hidden = false;
    this.plot?.classList.remove("plot-waiting");
    // Keep the last drawing; without one, show the message without a frame.
    if (!this.drawn && this.plot) this.plot.hidden = true;
  }

  tabular() {
    return this.toggle?.getAttribute("aria-pressed") === "true";
  }

  /** @param {boolean} on */
  showTable(on) {
    if (!this.toggle || !this.table || !this.plot) return;
    this.toggle.setAttribute("aria-pressed", String(on));
    this.toggle.textContent = on ? "View as chart" : "View as table";
    this.table.hidden = !on;
    void this.draw();
  }

  fillTable() {
    this.table?.replaceChildren(drawTable(tabulate(this.figure, this.choices?.x ?? "x")));
  }

  /** One library for all charts of the page: the full one if any chart needs it. */
  library() {
    return plotly((document.querySelector("plotly-figure[whole]") ?? this).getAttribute("plotly") ?? "");
  }

  /** URL of the same window as a trace. */
  traceUrl() {
    return `${this.getAttribute("trace")}?${new URLSearchParams(this.mover?.query())}`;
  }
}

customElements.define("plotly-figure", PlotlyFigure);
