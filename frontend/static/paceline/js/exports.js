// @ts-check
// The export menu of a figure: CSV, a titled picture, and a trace if there is one.

import { make } from "./elements.js";
import { keepView } from "./search.js";
import { csv, tabulate } from "./tables.js";
import { viewQuery } from "./view.js";

const WIDTH_PX = 1_200;
const LEAST_PX = 480;

/** @param {string} name @param {string} url */
function save(name, url) {
  const link = /** @type {HTMLAnchorElement} */ (make("a", { href: url, download: name }));
  link.click();
}

/** @param {HTMLElement & {figure: any, choices: Record<string, string>, library: () => Promise<any>, traceUrl: () => string}} owner */
export function exportMenu(owner) {
  const subject = owner.getAttribute("subject") ?? "";
  const heading = owner.getAttribute("heading") ?? "";
  const file = `${subject} ${heading}`.replaceAll(/[^\w]+/g, "-").replaceAll(/^-|-$/g, "").toLowerCase();
  const menu = make("details", { class: "menu export" });
  const body = make("div", { class: "menu-body menu-small" });
  menu.append(make("summary", { class: "button button-quiet" }, "Export"), body);

  /** @param {string} word @param {() => void} act */
  const item = (word, act) => {
    const button = make("button", { type: "button", class: "button button-quiet menu-row" }, word);
    button.addEventListener("click", () => {
      menu.removeAttribute("open");
      act();
    });
    body.append(button);
  };
  const asCsv = () => {
    const text = csv(tabulate(owner.figure, owner.choices.x ?? "x"));
    save(`${file}.csv`, URL.createObjectURL(new Blob([text], { type: "text/csv" })));
  };
  if (document.getElementById("chart-view") && !owner.hasAttribute("pinned")) item("Pin to my overview", () => void keepView(heading, owner.getAttribute("name") ?? ""));
  if (!owner.hasAttribute("trace")) item("CSV (chart data)", asCsv);
  for (const format of ["png", "svg"]) {
    item(format.toUpperCase(), async () => save(`${file}.${format}`, await picture(owner, `${heading} \u00b7 ${subject}`, format)));
  }
  if (owner.hasAttribute("measurements")) item("CSV (raw reports)", () => save(`${file}-reports.csv`, measurements(owner)));
  if (owner.hasAttribute("trace")) item("Trace for Perfetto", () => save(`${file}.json`, owner.traceUrl()));
  return menu;
}

/** URL of all reports behind a down-sampled chart, for its workers. @param {HTMLElement} owner */
function measurements(owner) {
  const ranks = (viewQuery().ranks ?? "").split(",").filter(Boolean);
  return `${owner.getAttribute("measurements")}?${new URLSearchParams(ranks.map((rank) => ["worker", rank]))}`;
}

/** @param {any} owner @param {string} title @param {string} format */
async function picture(owner, title, format) {
  const { data, layout } = owner.figure;
  const styles = getComputedStyle(document.documentElement);
  const burnt = {
    ...layout,
    title: { text: title, x: 0.02, y: 0.985, yanchor: "top", font: { size: 15, color: styles.getPropertyValue("--text") } },
    margin: { ...layout.margin, t: 84 },
    paper_bgcolor: styles.getPropertyValue("--surface").trim(),
  };
  const height = Math.max(LEAST_PX, layout.height ?? 0) + 60;
  return (await owner.library()).toImage({ data, layout: burnt }, { format, width: WIDTH_PX, height, scale: format === "png" ? 2 : 1 });
}
