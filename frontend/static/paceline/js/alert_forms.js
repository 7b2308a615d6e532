// @ts-check
// Forms of alert rules and targets: input is sent to REST, and errors are shown in the form at their field.

import { alarm, toast } from "./actions.js";
import { problemOf, send } from "./rest.js";

/** @typedef {{title: string, unit: string, default: number, least: number, most: number}} Parameter */
/** @typedef {{title: string, what: string, event: boolean, parameters: Record<string, Parameter>}} Kind */

const rules = /** @type {HTMLFormElement | null} */ (document.getElementById("rule-form"));
const targets = /** @type {HTMLFormElement | null} */ (document.getElementById("target-form"));
const imports = /** @type {HTMLFormElement | null} */ (document.getElementById("import-form"));
/** @type {Record<string, Kind>} */
const KINDS = JSON.parse(rules?.dataset.kinds ?? "{}");

let edited = "";

/** @param {HTMLFormElement | null} form @param {string} name */
function field(form, name) {
  return /** @type {HTMLInputElement} */ (form?.elements.namedItem(name));
}

/** @param {string} id */
function dialog(id) {
  return /** @type {HTMLDialogElement} */ (document.getElementById(id));
}

/** @param {string} id @param {string} text */
function write(id, text) {
  const place = document.getElementById(id);
  if (place) place.textContent = text;
}

/** The parameter of the chosen kind, if it has one. @returns {[string, Parameter] | undefined} */
function parameter() {
  return Object.entries(KINDS[field(rules, "kind").value].parameters)[0];
}

/** Show the description of the selected condition and the input of its parameter. @param {number | undefined} value */
function describe(value = undefined) {
  const kind = KINDS[field(rules, "kind").value];
  const [, known] = parameter() ?? [];
  write("rule-what", kind.what);
  const place = document.getElementById("rule-parameter");
  if (place) place.hidden = !known;
  if (known && place) {
    const input = field(rules, "parameter");
    const label = place.querySelector("span");
    if (label) label.textContent = `${known.title} (${known.unit})`;
    input.min = String(known.least);
    input.max = String(known.most);
    input.value = String(round(value === undefined ? known.default : known.unit === "%" ? value * 100 : value));
  }
  field(rules, "for_s").disabled = kind.event;
  if (kind.event) field(rules, "for_s").value = "0";
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 1e6) / 1e6;
}

/** @param {Record<string, any>} rule @param {string} number of the rule; empty: a new one */
function openRule(rule, number) {
  edited = number;
  rules?.reset();
  alarm(document.getElementById("rule-alert"), "");
  write("rule-title", number ? `Rule ${rule.name}` : "New rule");
  for (const name of ["name", "kind", "severity", "for_s", "clear_s", "repeat_s"]) {
    if (rule[name] !== undefined) field(rules, name).value = String(rule[name]);
  }
  field(rules, "enabled").checked = rule.enabled ?? true;
  field(rules, "where").value = Object.entries(rule.where ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");
  offerTargets();
  for (const box of boxes()) box.checked = (rule.targets ?? []).includes(box.value);
  describe(Object.values(rule.parameters ?? {})[0]);
  dialog("rule-dialog").showModal();
}

/** The current targets. Page updates do not touch an open form, so that its selection is not lost. */
function offerTargets() {
  const now = /** @type {HTMLTemplateElement | null} */ (document.getElementById("rule-target-boxes"));
  if (now) document.getElementById("rule-targets")?.replaceChildren(now.content.cloneNode(true));
}

function boxes() {
  return /** @type {HTMLInputElement[]} */ ([...(rules?.querySelectorAll('[name="targets"]') ?? [])]);
}

/** The value of a number field; text that is not a number is sent unchanged, and the server rejects it by field name. @param {string} name */
function number(name) {
  const text = field(rules, name).value.trim();
  return text === "" ? null : Number(text);
}

function ruleDocument() {
  const [name, known] = parameter() ?? [];
  const given = number("parameter");
  const pairs = field(rules, "where").value.split(",").map((pair) => pair.trim()).filter(Boolean);
  return {
    name: field(rules, "name").value.trim(),
    kind: field(rules, "kind").value,
    severity: field(rules, "severity").value,
    enabled: field(rules, "enabled").checked,
    where: Object.fromEntries(pairs.map((pair) => [pair.split("=")[0].trim(), pair.split("=").slice(1).join("=").trim()])),
    parameters: name && known ? { [name]: known.unit === "%" && given !== null ? round(given / 100) : given } : {},
    for_s: number("for_s"),
    clear_s: number("clear_s"),
    repeat_s: number("repeat_s"),
    targets: boxes().filter((box) => box.checked).map((box) => box.value),
  };
}

/** Send the document; an error is shown in the form. @param {"POST" | "PUT"} method @param {string} url @param {any} body @param {string} place @param {Record<string, string>} headers */
async function save(method, url, body, place, headers = {}) {
  const response = await send(method, url, body, headers);
  if (response?.ok) {
    document.dispatchEvent(new CustomEvent("paceline:requested"));
    return response;
  }
  const problem = await problemOf(response);
  alarm(document.getElementById(place), problem?.detail ?? "The control plane is unreachable; nothing was changed.", problem);
  return null;
}

rules?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const url = edited ? `/api/v1/alerts/rules/${edited}` : "/api/v1/alerts/rules";
  if (!(await save(edited ? "PUT" : "POST", url, ruleDocument(), "rule-alert"))) return;
  dialog("rule-dialog").close();
  toast("Rule saved.", false, true);
});
field(rules, "kind")?.addEventListener("change", () => describe());

function kindOfTarget() {
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (targets?.querySelectorAll("[data-of]") ?? [])) {
    part.hidden = part.dataset.of !== field(targets, "kind").value;
  }
}

/** @param {DOMStringMap} target @param {string} number of the target; empty: a new one */
function openTarget(target, number) {
  edited = number;
  targets?.reset();
  alarm(document.getElementById("target-alert"), "");
  write("target-title", number ? `Target ${target.target}` : "New target");
  for (const [name, value] of [["name", target.target], ["kind", target.kind], ["format", target.format]]) {
    if (value) field(targets, String(name)).value = value;
  }
  document.getElementById("target-keeps")?.toggleAttribute("hidden", !number);
  document.getElementById("target-secret")?.setAttribute("hidden", "");
  document.getElementById("target-save")?.removeAttribute("hidden");
  kindOfTarget();
  dialog("target-dialog").showModal();
}

field(targets, "kind")?.addEventListener("change", kindOfTarget);
targets?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = (/** @type {string} */ name) => field(targets, name).value.trim();
  const mail = text("kind") === "email";
  const addresses = text("addresses").split(",").map((each) => each.trim()).filter(Boolean);
  const body = { name: text("name"), kind: text("kind"), ...(mail ? { addresses } : { format: text("format"), url: text("url"), secret: text("secret") }) };
  const url = edited ? `/api/v1/alerts/targets/${edited}` : "/api/v1/alerts/targets";
  const response = await save(edited ? "PUT" : "POST", url, body, "target-alert");
  if (!response) return;
  toast("Target saved.", false, true);
  const { secret } = await response.json();
  if (mail || !secret) return dialog("target-dialog").close();
  write("target-secret-text", secret);
  alarm(document.getElementById("target-alert"), "");
  document.getElementById("target-secret")?.removeAttribute("hidden");
  document.getElementById("target-save")?.setAttribute("hidden", "");
});

field(imports, "file")?.addEventListener("change", async () => {
  const file = field(imports, "file").files?.[0];
  if (file) field(imports, "text").value = await file.text();
});
imports?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const response = await save("PUT", "/api/v1/alerts/document", field(imports, "text").value, "import-alert", { "Content-Type": "application/yaml" });
  if (!response) return;
  const done = await response.json();
  dialog("import-dialog").close();
  toast(`Imported: ${done.created.length} created, ${done.changed.length} changed, ${done.removed.length} removed.`, false, true);
});

document.addEventListener("click", (event) => {
  const button = /** @type {Element} */ (event.target).closest("button");
  if (button?.id === "rule-new") openRule({ severity: "warning" }, "");
  if (button?.id === "target-new") openTarget({}, "");
  if (button?.dataset.rule) openRule(JSON.parse(button.dataset.rule), button.dataset.number ?? "");
  if (button?.dataset.target) openTarget(button.dataset, button.dataset.number ?? "");
});
