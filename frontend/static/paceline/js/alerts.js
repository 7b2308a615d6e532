// @ts-check
// On every page: the number of firing alerts in the navigation, and a browser notification for each new one if enabled.

const WANTED = "paceline.alerts.notify";
const SEEN = "paceline.alerts.seen";

/** @typedef {{id: number, rule: string, severity: string, summary: string, path: string, fired_at: string}} Alert */

const badge = document.getElementById("alerts-badge");
const toggle = document.getElementById("alerts-notify");

/** @param {string} name */
function stored(name) {
  try {
    return localStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

/** Storage may be blocked; then the value is lost with this page. @param {string} name @param {string} value */
function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Storage is blocked.
  }
}

function wanted() {
  return "Notification" in window && Notification.permission === "granted" && stored(WANTED) === "on";
}

async function look() {
  const response = await fetch("/api/v1/alerts/news", { headers: { Accept: "application/json" }, credentials: "same-origin" }).catch(() => null);
  if (!response?.ok) return;
  /** @type {{firing: number, latest: Alert[]}} */
  const news = await response.json();
  count(news.firing);
  announce(news.latest);
}

/** @param {number} firing */
function count(firing) {
  if (!badge) return;
  badge.hidden = firing === 0;
  badge.textContent = String(firing);
  badge.setAttribute("aria-label", `${firing} firing`);
}

/** Notify of alerts that fired since any tab last polled; the first poll of a browser notifies of nothing. @param {Alert[]} latest */
function announce(latest) {
  const seen = stored(SEEN);
  const newest = Math.max(Number(seen), ...latest.map((alert) => Date.parse(alert.fired_at)));
  if (seen && wanted()) {
    for (const alert of latest.filter((each) => Date.parse(each.fired_at) > Number(seen))) notify(alert);
  }
  if (newest > Number(seen) || !seen) store(SEEN, String(newest));
}

/** All tabs use the same tag for an alert, so that it is shown once. @param {Alert} alert */
function notify(alert) {
  try {
    const shown = new Notification(`${alert.rule} (${alert.severity})`, { body: alert.summary, tag: `paceline-alert-${alert.id}` });
    shown.addEventListener("click", () => {
      window.focus();
      location.assign(alert.path || "/alerts/");
    });
  } catch {
    // Some browsers show notifications from service workers only; the badge is updated in any case.
  }
}

function show() {
  if (!toggle) return;
  toggle.hidden = !("Notification" in window);
  toggle.setAttribute("aria-pressed", String(wanted()));
  const words = toggle.querySelector("span");
  if (words) words.textContent = wanted() ? "Notifications are on" : "Notify me in this browser";
}

toggle?.addEventListener("click", async () => {
  if (wanted()) store(WANTED, "off");
  else {
    const given = await Notification.requestPermission();
    store(WANTED, given === "granted" ? "on" : "off");
    if (given !== "granted") toggle.title = "This browser blocks notifications from this site: allow them in its settings.";
  }
  show();
});

// On a narrow screen the navigation scrolls: bring the current page's link into view.
document.querySelector(".topbar nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
document.addEventListener("paceline:alerts", () => void look());
if (badge) void look();
show();
