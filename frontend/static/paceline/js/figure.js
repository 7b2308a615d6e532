// @ts-check
// <plotly-figure src name heading axes plotly>: fetches a figure, draws it while it is in view, and says in words what
// it shows. Zoom survives new data because uirevision is constant; nothing is drawn that has not changed.

const TABLE_ROWS = 200;
const TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array, i2: Int16Array, i1: Int8Array, u1: Uint8Array };
const X_WORDS = { iteration: "Iteration", time: "Time", samples: "Samples" };

/** @type {Promise<any> | undefined} */
let loading;

/** Plotly, loaded once, when the first figure comes into view. @param {string} url */
function plotly(url) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = url;
    script.onload = () => resolve(/** @type {any} */ (window).Plotly);
    script.onerror = () => reject(new Error("the chart library did not load"));
    document.head.append(script);
  });
  return loading;
}

/** @param {any} values @returns {ArrayLike<number>} */
function plain(values) {
  if (!values?.bdata) return values ?? [];
  const bytes = Uint8Array.from(atob(values.bdata), (letter) => letter.charCodeAt(0));
  const kind = /** @type {keyof typeof TYPES} */ (values.dtype);
  return new TYPES[kind](bytes.buffer);
}

/** @param {string} tag @param {Record<string, string>} attributes @param {(Node | string)[]} children */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
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
    this.key = `x-${this.getAttribute("name")}`;
    const axes = (this.getAttribute("axes") ?? "").split(" ").filter(Boolean);
    this.x = new URLSearchParams(location.search).get(this.key) ?? axes[0];
    if (!axes.includes(this.x)) this.x = axes[0];
    this.build(axes);
    document.addEventListener("paceline:theme", () => this.refresh());
    new IntersectionObserver((entries) => this.seen(entries[entries.length - 1].isIntersecting), {
      rootMargin: "200px",
    }).observe(this);
  }

  /** @param {string[]} axes */
  build(axes) {
    const name = this.getAttribute("name") ?? "";
    const title = make("h2", { id: `title-${name}` }, this.getAttribute("heading") ?? name);
    this.badge = make("span", { class: "figure-badge" });
    this.toggle = /** @type {HTMLButtonElement} */ (
      make("button", { type: "button", class: "button button-quiet", "aria-pressed": "false", hidden: "" }, "View as table")
    );
    this.toggle.addEventListener("click", () => this.showTable(this.toggle.getAttribute("aria-pressed") !== "true"));
    this.plot = make("div", { class: "plot plot-waiting", role: "img", "aria-labelledby": `title-${name} caption-${name}` });
    this.table = make("div", { class: "figure-table", role: "region", tabindex: "0", hidden: "", "aria-labelledby": `title-${name}` });
    this.nothing = make("p", { class: "figure-empty", hidden: "" });
    this.caption = make("p", { class: "figure-caption", id: `caption-${name}` });
    this.error = make("p", { class: "figure-error", hidden: "" });
    const head = make("div", { class: "figure-head" }, title, this.badge, this.axisSwitch(axes, name), this.toggle);
    this.append(head, this.plot, this.table, this.nothing, this.caption, this.error);
  }

  /** @param {string[]} axes @param {string} name */
  axisSwitch(axes, name) {
    const legend = make("legend", { class: "visually-hidden" }, "Horizontal axis");
    const set = make("fieldset", { class: "segmented" }, legend);
    for (const axis of axes) {
      const input = /** @type {HTMLInputElement} */ (make("input", { type: "radio", name: `x-${name}`, value: axis }));
      input.checked = axis === this.x;
      input.addEventListener("change", () => this.switchAxis(axis));
      set.append(make("label", {}, input, make("span", {}, X_WORDS[/** @type {keyof typeof X_WORDS} */ (axis)] ?? axis)));
    }
    return set;
  }

  /** @param {string} axis */
  switchAxis(axis) {
    this.x = axis;
    const url = new URL(location.href);
    url.searchParams.set(this.key ?? "", axis);
    history.replaceState(history.state, "", url);
    this.refresh();
  }

  /** @param {boolean} visible */
  seen(visible) {
    this.visible = visible;
    if (visible && this.dirty) void this.load();
    else if (!visible && this.drawn) this.unmount();
  }

  /** Called by the page's websocket when this figure's data have moved. */
  refresh() {
    this.dirty = true;
    if (this.visible) void this.load();
  }

  async load() {
    if (this.busy) return;
    this.busy = true;
    while (this.dirty && this.visible) {
      this.dirty = false;
      try {
        await this.fetch();
      } catch (problem) {
        this.fail(problem instanceof Error ? problem.message : String(problem));
      }
    }
    this.busy = false;
  }

  async fetch() {
    const theme = document.documentElement.dataset.theme ?? "light";
    const url = `${this.getAttribute("src")}?theme=${theme}&x=${this.x}`;
    const known = this.figure && this.etag.startsWith(`${url} `) ? this.etag.slice(url.length + 1) : "";
    /** @type {Record<string, string>} */
    const headers = { Accept: "application/json" };
    if (known) headers["If-None-Match"] = known;
    const response = await fetch(url, { headers, cache: "no-store", credentials: "same-origin" });
    if (response.status === 304) {
      if (!this.drawn) await this.draw();
      return;
    }
    if (!response.ok) throw new Error(`this figure could not be fetched (${response.status}); it is asked for again with the next change`);
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
    this.toggle?.toggleAttribute("hidden", data.length === 0);
    this.plot.hidden = data.length === 0 || this.tabular();
    this.plot.classList.remove("plot-waiting");
    if (this.tabular()) this.fillTable();
    if (!this.plot.hidden) await this.mount(data, layout);
  }

  /** @param {any[]} data @param {any} layout */
  async mount(data, layout) {
    const library = await plotly(this.getAttribute("plotly") ?? "");
    // The figure's own height is the least it takes; the page may give it more.
    this.plot?.style.setProperty("min-height", layout.height ? `${layout.height}px` : "");
    await library.react(this.plot, data, { ...layout, height: undefined, autosize: true }, { responsive: true, displayModeBar: false, displaylogo: false });
    this.drawn = true;
  }

  /** A figure out of view costs nothing; it is drawn again, from what it has, when it comes back. */
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
    const columns = this.figure.data.map((/** @type {any} */ trace) => ({ name: trace.meta ?? trace.name, x: plain(trace.x), y: plain(trace.y) }));
    /** @type {Map<number, (number | undefined)[]>} */
    const rows = new Map();
    columns.forEach((/** @type {any} */ column, /** @type {number} */ place) => {
      for (let index = 0; index < column.x.length; index++) {
        const row = rows.get(column.x[index]) ?? [];
        row[place] = column.y[index];
        rows.set(column.x[index], row);
      }
    });
    const last = [...rows].sort(([a], [b]) => b - a).slice(0, TABLE_ROWS);
    const heads = [this.x ?? "x", ...columns.map((/** @type {any} */ column) => column.name)];
    const head = make("tr", {}, ...heads.map((name) => make("th", { scope: "col", class: "number" }, name)));
    const body = last.map(([x, values]) =>
      make("tr", {}, make("th", { scope: "row", class: "number" }, short(x)), ...columns.map((_, place) => make("td", { class: "number" }, short(values[place]))))
    );
    const caption = make("caption", { class: "muted" }, rows.size > TABLE_ROWS ? `The last ${TABLE_ROWS} of ${rows.size} points` : `All ${rows.size} points`);
    this.table?.replaceChildren(make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...body)));
  }
}

/** @param {number | undefined} value */
function short(value) {
  if (value === undefined || Number.isNaN(value)) return "–";
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

customElements.define("plotly-figure", PlotlyFigure);
