// @ts-check
// The form of a job: its fields are paths of a spec, the preview is the exact request, and a server error about a field
// is shown at that field. One idempotency key per spec, so that a second click or a retry creates no second job.

import { alarm } from "./actions.js";
import { Parameters } from "./parameters.js";
import { problemOf, send } from "./rest.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("submit-form"));
const button = /** @type {HTMLButtonElement} */ (document.getElementById("submit-button"));
const alertBox = /** @type {HTMLElement} */ (document.getElementById("submit-alert"));
const finding = /** @type {HTMLElement} */ (document.getElementById("submit-finding"));
const presets = JSON.parse(document.getElementById("presets")?.textContent ?? "{}");
/** @typedef {import("./parameters.js").Entry & {datasets?: string[]}} Entry */
/** The available choices, by name. @type {{policies: Record<string, Record<string, Entry>>, workloads: Record<string, Entry>, datasets: Record<string, Entry>}} */
const offered = JSON.parse(document.getElementById("offered")?.textContent ?? "{}");
/** The delay after typing before the spec is checked. */
const QUIET_MS = 700;
const copied = JSON.parse(document.getElementById("copied")?.textContent ?? "null");

/** A URL with the selected team, which is not part of the spec. @param {string} url */
function forTeam(url) {
  const team = /** @type {HTMLSelectElement | null} */ (document.getElementById("team"))?.value;
  return team ? `${url}?team=${encodeURIComponent(team)}` : url;
}

/** Values without a form field, kept from the preset or the copied job. @type {Record<string, any>} */
let base = {};
let key = newKey();
let lookTimer = 0;

/** The parameter inputs, by path in the spec. @type {Map<string, Parameters>} */
const parameters = new Map(
  [...form.querySelectorAll("[data-parameters]")].map((place) => {
    const path = place.getAttribute("data-parameters") ?? "";
    return [path, new Parameters(place, path)];
  })
);

/** Browsers provide no UUIDs without TLS, except on loopback. */
function newKey() {
  return crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
}

/** @returns {(HTMLInputElement | HTMLSelectElement)[]} */
function fields() {
  return [...form.querySelectorAll("[data-kind]")].map((each) => /** @type {HTMLInputElement} */ (each));
}

/** @param {any} tree @param {string} path */
function at(tree, path) {
  return path.split(".").reduce((found, name) => found?.[name], tree);
}

/** @param {Record<string, any>} tree @param {string} path @param {any} value */
function put(tree, path, value) {
  const names = path.split(".");
  const last = /** @type {string} */ (names.pop());
  let branch = tree;
  for (const name of names) branch = branch[name] ??= {};
  if (value === undefined) delete branch[last];
  else branch[last] = value;
}

/** @param {HTMLInputElement | HTMLSelectElement} field */
function valueOf(field) {
  const text = field.value.trim();
  if (text === "") return undefined;
  if (field.dataset.kind === "labels") return Object.fromEntries(text.split(/[,\n]/).map((pair) => pair.split("=").map((part) => part.trim())));
  const numeric = field.dataset.kind === "integer" || field.dataset.kind === "number";
  // Text that is not a number is sent unchanged and rejected by the server.
  return numeric && Number.isFinite(Number(text)) ? Number(text) : text;
}

function spec() {
  const tree = structuredClone(base);
  for (const field of fields()) put(tree, field.name, valueOf(field));
  for (const [path, inputs] of parameters) {
    const name = at(tree, `${path}.name`);
    put(tree, path, path.startsWith("synchronization.") ? { name, ...inputs.read() } : inputs.read());
  }
  return prune(tree);
}

/** The entry to which the parameters at a path belong: a policy, a workload or a data set. @param {string} path */
function entryOf(path) {
  const typed = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name)).value.trim();
  if (path === "workload.options") return offered.workloads[typed("workload.name")];
  if (path === "workload.data") return offered.datasets[typed("workload.dataset")];
  const question = path.split(".")[1];
  return offered.policies[question]?.[typed(`${path}.name`)];
}

/** Show the parameters of the selected entry. @param {string} path @param {any} given */
function offer(path, given = {}) {
  const entry = entryOf(path);
  const own = typeof given === "object" && given ? Object.fromEntries(Object.entries(given).filter(([name]) => !path.startsWith("synchronization.") || name !== "name")) : {};
  const count = parameters.get(path)?.show(entry, own, (kind) => Object.keys(offered.policies[kind] ?? {})) ?? 0;
  const drawer = /** @type {HTMLDetailsElement | null | undefined} */ (form.querySelector(`[data-parameters="${path}"]`)?.closest("details"));
  if (drawer) [drawer.hidden, drawer.open] = [count === 0, !entry || Object.keys(own).length > 0];
  const about = { "workload.options": "workload.name", "workload.data": "workload.dataset" }[path] ?? `${path}.name`;
  if (entry) show(`h-${about}`, entry.explanation + (entry.paper ? ` (${entry.paper})` : ""));
}

/** Offer the data sets of the workload; all data sets for a custom workload. */
function offerDatasets() {
  const workload = offered.workloads[/** @type {HTMLInputElement} */ (form.elements.namedItem("workload.name")).value.trim()];
  const names = workload?.datasets ?? Object.keys(offered.datasets);
  document.getElementById("l-workload.dataset")?.replaceChildren(...names.map((name) => Object.assign(document.createElement("option"), { value: name })));
}

/** @param {any} tree */
function prune(tree) {
  if (tree === null || typeof tree !== "object" || Array.isArray(tree)) return tree;
  const kept = Object.entries(tree).map(([name, value]) => [name, prune(value)]);
  return Object.fromEntries(kept.filter(([, value]) => !(value === null || (typeof value === "object" && !Array.isArray(value) && !Object.keys(value).length))));
}

/** @param {Record<string, any>} document_ */
function fill(document_) {
  base = structuredClone(document_);
  for (const field of fields()) {
    const value = at(document_, field.name);
    if (field.dataset.kind === "labels") field.value = Object.entries(value ?? {}).map((pair) => pair.join("=")).join(", ");
    else if (value !== undefined && value !== null) field.value = typeof value === "object" ? value.name : String(value);
    else if (field instanceof HTMLSelectElement) field.selectedIndex = 0;
    else field.value = "";
    // A spec may name a default, for which the list has a label.
    if (field instanceof HTMLSelectElement && field.selectedIndex < 0 && field.options[0]?.value === "") field.selectedIndex = 0;
  }
  offerDatasets();
  for (const path of parameters.keys()) offer(path, at(document_, path));
  changed();
}

function changed() {
  const json = JSON.stringify(spec(), null, 2);
  clearTimeout(lookTimer);
  lookTimer = setTimeout(() => void look(), QUIET_MS);
  show("preview", json);
  const url = forTeam(form.dataset.url ?? "");
  const quoted = json.replaceAll("'", "'\\''");
  show("curl", `curl -X POST ${url.includes("?") ? `'${url}'` : url} \\\n  -H "Authorization: Bearer $PACELINE_API_TOKEN" \\\n  -H "Content-Type: application/json" \\\n  -H "Idempotency-Key: ${key}" \\\n  -d '${quoted}'`);
}

/** @param {string} id @param {string} text */
function show(id, text) {
  const place = document.getElementById(id);
  if (place) place.textContent = text;
}

function clearErrors() {
  finding.hidden = true;
  alertBox.hidden = true;
  for (const place of form.querySelectorAll(".field-error")) place.textContent = "";
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

/** The form field for a path in an error: the field itself, its parent, or the first field within it. @param {string} path */
function fieldFor(path) {
  const names = [...form.querySelectorAll("[data-kind], [data-parameter]")].map((field) => field.getAttribute("name") ?? "");
  const found = names.find((name) => name === path) ?? names.find((name) => path.startsWith(`${name}.`)) ?? names.find((name) => name.startsWith(`${path}.`));
  return found ? /** @type {HTMLElement} */ (form.elements.namedItem(found)) : null;
}

/** @param {import("./rest.js").Problem} problem */
function showProblem(problem) {
  /** @type {HTMLElement | null} */
  let first = null;
  const rest = [];
  for (const error of problem.errors ?? []) {
    const field = error.field ? fieldFor(error.field) : null;
    if (!field) {
      rest.push(`${error.field}: expected ${error.expected}`);
      continue;
    }
    field.setAttribute("aria-invalid", "true");
    show(`e-${field.getAttribute("name")}`, `Expected ${error.expected}`);
    first ??= field;
  }
  showMessage(rest.join("; ") || problem.detail || "The job was rejected.", problem);
  first?.focus();
}

/** @param {string} text @param {import("./rest.js").Problem | null} problem */
function showMessage(text, problem = null) {
  alarm(alertBox, text, problem);
  alertBox.scrollIntoView({ block: "center" });
}

/** While the form is filled in, warn of a job that would be refused or would wait; an incomplete spec gives no warning. */
async function look() {
  const asked = JSON.stringify(spec());
  const response = await send("POST", forTeam(form.dataset.lookUrl ?? ""), asked);
  const answer = response?.ok ? await response.json().catch(() => null) : null;
  if (asked !== JSON.stringify(spec())) return;
  const refused = answer?.outcome === "refused";
  finding.hidden = !refused && answer?.outcome !== "never" && answer?.outcome !== "waits";
  finding.classList.toggle("notice-watch", refused || answer?.outcome === "never");
  if (!finding.hidden) finding.textContent = refused ? `If submitted now, this job would be refused: ${answer.finding}.` : `If submitted now, this job ${answer.finding}.`;
}

/** Validate the spec without submitting it. */
async function check() {
  clearErrors();
  const response = await send("POST", forTeam(form.dataset.checkUrl ?? ""), spec());
  if (!response) return showMessage("The control plane is unreachable.");
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) return showProblem(answer);
  clearTimeout(lookTimer);
  finding.textContent = `The spec is valid: ${answer.finding}.`;
  finding.classList.toggle("notice-watch", answer.outcome === "never");
  finding.hidden = false;
  return undefined;
}

/** Submit the job. Returns whether the page is being left for the job's page. */
async function submitJob() {
  const response = await send("POST", forTeam(form.dataset.url ?? ""), spec(), { "Idempotency-Key": key });
  if (!response) {
    showMessage("The control plane is unreachable. Submitting again is safe: the job is not created twice.");
    return false;
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    showProblem(answer);
    return false;
  }
  location.assign((form.dataset.jobPage ?? "").replace("/0/", `/${answer.id}/`));
  return true;
}

form.addEventListener("input", (event) => {
  const field = /** @type {HTMLInputElement} */ (event.target);
  if (field.name === "preset") {
    fill(field.value ? presets[field.value] : copied);
    document.getElementById("left")?.toggleAttribute("hidden", field.value !== "");
    clearErrors();
  } else if (field.dataset.kind || field.dataset.parameter) {
    field.removeAttribute("aria-invalid");
    show(`e-${field.name}`, "");
  }
  if (field.name === "workload.name") offerDatasets();
  const part = { "workload.name": "workload.options", "workload.dataset": "workload.data" }[field.name] ?? (field.name.startsWith("synchronization.") && field.name.endsWith(".name") ? field.name.slice(0, -5) : "");
  if (part) offer(part);
  key = newKey();
  changed();
});

document.getElementById("check-button")?.addEventListener("click", () => void check());

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.disabled) return;
  button.disabled = true;
  clearErrors();
  button.disabled = await submitJob();
});

const yamlForm = /** @type {HTMLFormElement} */ (document.getElementById("yaml-form"));
const yamlText = /** @type {HTMLTextAreaElement} */ (document.getElementById("yaml-text"));

document.getElementById("yaml-file")?.addEventListener("change", async (event) => {
  const file = /** @type {HTMLInputElement} */ (event.target).files?.[0];
  if (file) yamlText.value = await file.text();
});

yamlForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = document.getElementById("yaml-alert");
  const response = await send("POST", forTeam(form.dataset.checkUrl ?? ""), yamlText.value, { "Content-Type": "application/yaml" });
  if (!response?.ok) {
    const problem = await problemOf(response);
    const wrong = problem?.errors?.map((each) => `${each.field}: expected ${each.expected}`).join("; ");
    return alarm(place, wrong || problem?.detail || "The control plane is unreachable.", problem);
  }
  alarm(place, "");
  clearErrors();
  fill((await response.json()).spec);
  yamlForm.closest("dialog")?.close();
  return undefined;
});

fill(copied ?? Object.values(presets)[0]);
