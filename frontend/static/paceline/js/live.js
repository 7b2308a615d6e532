// @ts-check
// The page's one websocket: numbered ticks name what changed, and the affected parts of the page refetch themselves.
// Ticks carry no data. After a gap or a reconnect everything on the page is fetched once, so no update is lost or applied twice.

const BACKOFF_MS = { first: 500, most: 30_000 };
const STALE_MS = 10_000;
/** Seconds that entries wait for the database: above `becomes` the page is stale, until they wait less than `remains`. */
const LATE_S = { becomes: 5, remains: 2 };
const RATE_KEY = "paceline.rate";
const ALL = "*";

/** @typedef {{type: "tick", seq: number, at_ms: number, jobs: Record<string, string>, fleet: boolean, alerts?: boolean}} Tick */

const box = document.getElementById("freshness");

class Page {
  constructor() {
    /** @type {Set<string>} what has changed since the last flush: "job:7", "jobs", "fleet", or everything */
    this.moved = new Set();
    this.paused = false;
    this.left = false;
    this.open = false;
    this.attempts = 0;
    /** The number of the last tick; -1 before the first of a connection. */
    this.seq = -1;
    this.atMs = 0;
    this.lastData = Date.now();
    this.lostAt = 0;
    this.retryAt = 0;
    this.flushTimer = 0;
    this.retryTimer = 0;
    this.lastFlush = 0;
    this.lastFetch = Date.now();
    this.late = false;
    this.rate = storedRate();
  }

  connect() {
    clearTimeout(this.retryTimer);
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}${box?.dataset.socket}`, ["paceline.v1"]);
    this.socket.addEventListener("open", () => this.opened());
    this.socket.addEventListener("message", (event) => this.receive(event.data));
    this.socket.addEventListener("close", (event) => this.closed(event.code));
  }

  opened() {
    this.open = true;
    this.attempts = 0;
    this.seq = -1;
    this.lastData = Date.now();
    // Fetch changes that were missed since the connection was lost or the page was rendered.
    this.mark(ALL);
    announceAlerts();
    this.show();
  }

  /** @param {string} text */
  receive(text) {
    /** @type {Tick} */
    const tick = JSON.parse(text);
    if (tick.type !== "tick") return;
    const expected = this.seq === -1 || tick.seq === this.seq + 1;
    // A number that was seen is a repetition, unless its time is newer: then the numbering was restarted.
    if (!expected && tick.seq <= this.seq && tick.at_ms <= this.atMs) return;
    this.seq = tick.seq;
    this.atMs = tick.at_ms;
    this.lastData = Date.now();
    if (tick.alerts || !expected) announceAlerts();
    if (!expected) return this.mark(ALL);
    const jobs = Object.keys(tick.jobs ?? {});
    for (const job of jobs) this.mark(`job:${job}`);
    if (jobs.length) this.mark("jobs");
    if (tick.fleet) this.mark("fleet");
    if (tick.alerts) this.mark("alerts");
  }

  /** @param {number} code */
  closed(code) {
    if (this.open) this.lostAt = Date.now();
    else if (!this.lostAt) this.lostAt = Date.now();
    this.open = false;
    if (this.left) return;
    if (code === 4401) return location.reload();
    const ceiling = Math.min(BACKOFF_MS.most, BACKOFF_MS.first * 2 ** this.attempts++);
    const wait = ceiling * (0.5 + Math.random() / 2);
    this.retryAt = Date.now() + wait;
    this.retryTimer = setTimeout(() => this.connect(), wait);
    this.show();
  }

  /** Stop all requests: after signing out the session is gone before the next page loads. */
  leave() {
    this.left = true;
    clearTimeout(this.flushTimer);
    clearTimeout(this.retryTimer);
    for (const part of document.querySelectorAll("plotly-figure")) /** @type {any} */ (part).leave();
    // htmx logs errors for requests that it aborts; requests in flight would return the sign-in page.
    document.body.addEventListener("htmx:beforeSwap", (event) => (/** @type {CustomEvent} */ (event).detail.shouldSwap = false));
    // The browser may restore this page from its back/forward cache.
    addEventListener("pageshow", (event) => event.persisted && location.reload());
  }

  /** Reconnect immediately: the network or the tab is active again. */
  hurry() {
    if (this.left || this.open || this.socket?.readyState === WebSocket.CONNECTING) return;
    this.attempts = 0;
    this.connect();
  }

  /** @param {string} topic */
  mark(topic) {
    this.moved.add(topic);
    this.schedule();
  }

  schedule() {
    if (this.flushTimer || this.left || this.paused || document.hidden || !this.moved.size) return;
    const wait = Math.max(0, this.lastFlush + this.rate - Date.now());
    this.flushTimer = setTimeout(() => this.flush(), wait);
  }

  flush() {
    this.flushTimer = 0;
    if (this.paused || document.hidden) return;
    this.lastFlush = Date.now();
    const moved = new Set(this.moved);
    this.moved.clear();
    for (const part of document.querySelectorAll("[data-live]")) {
      const topics = (part.getAttribute("data-live") ?? "").split(" ");
      if (!moved.has(ALL) && !topics.some((topic) => moved.has(topic))) continue;
      this.lastFetch = this.lastFlush;
      refresh(part);
    }
  }

  /** A stalled ingest sends no ticks: after some time without one the page requests the age of its data. */
  askIfQuiet(/** @type {number} */ afterMs) {
    if (!this.finished() && Date.now() - this.lastFetch >= afterMs) this.mark("quiet");
  }

  /** The time of the displayed data, such as "12:03:41", if history is behind; else "". */
  agedSince() {
    const age = /** @type {HTMLElement | null} */ (document.querySelector("#data-age [data-waits]"));
    const waits = Number(age?.dataset.waits ?? 0);
    this.late = waits > (this.late ? LATE_S.remains : LATE_S.becomes);
    if (!this.late) return "";
    return age?.dataset.at ? new Date(age.dataset.at).toLocaleTimeString("en-GB") : "none yet";
  }

  togglePause() {
    this.paused = !this.paused;
    const button = document.getElementById("pause");
    button?.setAttribute("aria-pressed", String(this.paused));
    button?.setAttribute("aria-label", this.paused ? "Resume updates" : "Pause updates");
    if (!this.paused) this.schedule();
    this.show();
  }

  finished() {
    return document.querySelector("[data-finished]")?.getAttribute("data-finished") === "yes";
  }

  state() {
    if (this.finished()) return { name: "finished", word: "Finished" };
    if (this.paused) return { name: "paused", word: "Paused" };
    const aged = this.agedSince();
    if (this.open && aged) return { name: "stale", word: `Stale (last data ${aged})` };
    if (this.open) return { name: "live", word: "Live" };
    if (!this.lostAt) return { name: "connecting", word: "Connecting" };
    if (Date.now() - this.lostAt > STALE_MS) {
      return { name: "stale", word: `Stale (last data ${new Date(this.lastData).toLocaleTimeString("en-GB")})` };
    }
    const seconds = Math.max(0, Math.ceil((this.retryAt - Date.now()) / 1000));
    return { name: "reconnecting", word: `Reconnecting (${seconds} s)` };
  }

  show() {
    if (!box) return;
    const { name, word } = this.state();
    const place = box.querySelector("[data-word]");
    if (place && place.textContent !== word) place.textContent = word;
    if (box.dataset.state === name) return;
    box.dataset.state = name;
    // Not body:has(...): with each change in the page the browser would compute the styles of all its numbers again.
    document.body.toggleAttribute("data-stale", name === "stale");
    const status = document.getElementById("freshness-status");
    if (status) status.textContent = name === "connecting" ? "" : `Updates: ${word.split(" (")[0]}`;
  }
}

/** Immediately, also on a hidden or paused page: notifications are for users who are not looking at it. */
function announceAlerts() {
  document.dispatchEvent(new CustomEvent("paceline:alerts"));
}

/** @param {Element} part */
function refresh(part) {
  if ("refresh" in part) /** @type {any} */ (part).refresh();
  else /** @type {any} */ (window).htmx.trigger(part, "refresh");
}

function storedRate() {
  try {
    return Number(localStorage.getItem(RATE_KEY)) || 500;
  } catch {
    return 500;
  }
}

/** Update "12 s ago" without a request. */
function age() {
  const now = Date.now();
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const seconds = Math.max(0, Math.floor((now - Date.parse(time.getAttribute("datetime") ?? "")) / 1000));
    const [size, unit] = [[86_400, "d"], [3_600, "h"], [60, "min"]].find(([size]) => seconds >= Number(size)) ?? [1, "s"];
    const text = seconds < 5 ? "just now" : `${Math.floor(seconds / Number(size))} ${unit} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}

function bindRate(/** @type {Page} */ page) {
  const current = document.querySelector(`#rate-switch input[value="${page.rate}"]`);
  if (current instanceof HTMLInputElement) current.checked = true;
  document.getElementById("rate-switch")?.addEventListener("change", (event) => {
    page.rate = Number(/** @type {HTMLInputElement} */ (event.target).value);
    try {
      localStorage.setItem(RATE_KEY, String(page.rate));
    } catch {
      // Storage may be blocked; then the rate applies to this page only.
    }
  });
}

// An unchanged part is not replaced: selection, focus and open menus survive.
document.body.addEventListener("htmx:oobBeforeSwap", (event) => {
  const { target, fragment } = /** @type {CustomEvent} */ (event).detail;
  if (unchanged(target, fragment.firstElementChild ?? fragment)) /** @type {CustomEvent} */ (event).detail.shouldSwap = false;
});
document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { target, serverResponse, isError } = /** @type {CustomEvent} */ (event).detail;
  if (isError || !target.hasAttribute("data-live")) return;
  const answer = document.createElement("template");
  answer.innerHTML = serverResponse;
  const fresh = answer.content.firstElementChild;
  // Out-of-band parts are swapped by the same event, so it must not be stopped if there are any.
  if (answer.content.childElementCount === 1 && fresh?.id === target.id && unchanged(target, fresh)) {
    /** @type {CustomEvent} */ (event).detail.shouldSwap = false;
  }
});

// Keep the focus on the same link or field when its part is replaced; htmx does this for elements with an id.
let focused = "";
for (const swap of ["htmx:beforeSwap", "htmx:oobBeforeSwap"]) {
  document.body.addEventListener(swap, () => {
    if (document.activeElement !== document.body) focused = selectorOf(document.activeElement);
  });
}
for (const swapped of ["htmx:oobAfterSwap", "htmx:afterSettle"]) {
  document.body.addEventListener(swapped, () => {
    if (focused && document.activeElement === document.body) {
      /** @type {HTMLElement | null} */ (document.querySelector(focused))?.focus({ preventScroll: true });
    }
  });
}

/** A selector that finds an element again after its part was replaced; empty: none. @param {Element | null} element */
function selectorOf(element) {
  const part = element?.closest("[id]");
  if (!element || !part || part === element) return "";
  const names = ["href", "name", "value", "aria-label"].filter((name) => element.hasAttribute(name));
  const marks = names.map((name) => `[${name}="${CSS.escape(element.getAttribute(name) ?? "")}"]`);
  return marks.length ? `#${CSS.escape(part.id)} ${element.localName}${marks.join("")}` : "";
}

/** Whether a part is unchanged; details that the user has opened stay open. @param {Element} shown @param {Element} fresh */
function unchanged(shown, fresh) {
  for (const open of shown.querySelectorAll("details[data-keep][open]")) fresh.querySelector(`#${open.id}`)?.setAttribute("open", "");
  return timeless(shown.innerHTML) === timeless(fresh.innerHTML);
}

/** @param {string} html */
function timeless(html) {
  return html.replace(/(<time[^>]*>)[^<]*/g, "$1").trim();
}

// Live parts are fetched with the page's own query string, so that filters and table pages are kept.
document.body.addEventListener("htmx:configRequest", (event) => {
  const { elt, parameters } = /** @type {CustomEvent} */ (event).detail;
  if (!elt.hasAttribute("data-live-query")) return;
  for (const [name, value] of new URLSearchParams(location.search)) parameters[name] = value;
});

if (box) {
  const page = new Page();
  bindRate(page);
  // htmx processes the parts at this event; an earlier tick would have no handler.
  document.addEventListener("DOMContentLoaded", () => page.connect());
  document.getElementById("pause")?.addEventListener("click", () => page.togglePause());
  document.addEventListener("paceline:requested", () => page.mark(ALL));
  document.addEventListener("paceline:pause", () => page.togglePause());
  document.querySelector("[data-signs-out]")?.addEventListener("submit", () => page.leave());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    page.hurry();
    page.schedule();
  });
  addEventListener("online", () => page.hurry());
  // Parts without ticks are refreshed by a timer unless updates are paused.
  const timed = document.querySelector("[data-every]");
  if (timed) setInterval(() => page.mark("clock"), Number(timed.getAttribute("data-every")));
  const quiet = document.querySelector("[data-quiet]");
  if (quiet) setInterval(() => page.askIfQuiet(Number(quiet.getAttribute("data-quiet"))), 1_000);
  setInterval(() => page.show(), 1_000);
}
setInterval(age, 1_000);
