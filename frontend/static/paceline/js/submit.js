// @ts-check
// The form of a job: its fields are paths of a spec, the preview is what will be sent, and the server's word on a field
// lands on that field. One key per spec, so that a second click, or a retry after a lost answer, makes no second job.

import { alarm } from "./actions.js";
import { send } from "./rest.js";
import { read, written } from "./settings.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("submit-form"));
const button = /** @type {HTMLButtonElement} */ (document.getElementById("submit-button"));
const alertBox = /** @type {HTMLElement} */ (document.getElementById("submit-alert"));
const finding = /** @type {HTMLElement} */ (document.getElementById("submit-finding"));
const presets = JSON.parse(document.getElementById("presets")?.textContent ?? "{}");
/** Batching policies that are given a predictor. @type {string[]} */
const predicting = JSON.parse(document.getElementById("predicting")?.textContent ?? "[]");
const copied = JSON.parse(document.getElementById("copied")?.textContent ?? "null");

/** What the form has no field for, kept from the preset or the copied job. @type {Record<string, any>} */
let base = {};
let key = newKey();

/** Off loopback and without TLS, browsers make no UUIDs. */
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
  if (field.dataset.kind === "settings") return read(text);
  const numeric = field.dataset.kind === "integer" || field.dataset.kind === "number";
  // What is not a number goes as it is: the server says what it expects.
  return numeric && Number.isFinite(Number(text)) ? Number(text) : text;
}

function spec() {
  const tree = structuredClone(base);
  for (const field of fields()) put(tree, field.name, applies(field.name) ? valueOf(field) : undefined);
  return prune(tree);
}

/** A predictor belongs to policies that predict. @param {string} path */
function applies(path) {
  if (path !== "synchronization.batching.predictor") return true;
  const policy = /** @type {HTMLSelectElement} */ (form.elements.namedItem("synchronization.batching.name"));
  return predicting.includes(policy.value);
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
    else if (field.dataset.kind === "settings") field.value = written(value ?? {});
    else if (value !== undefined && value !== null) field.value = typeof value === "object" ? value.name : String(value);
    else if (field instanceof HTMLSelectElement) field.selectedIndex = 0;
    else field.value = "";
    // A spec may say what is usual, for which a list has words instead.
    if (field instanceof HTMLSelectElement && field.selectedIndex < 0 && field.options[0]?.value === "") field.selectedIndex = 0;
  }
  changed();
}

function changed() {
  const json = JSON.stringify(spec(), null, 2);
  const predictor = form.querySelector('[data-field="synchronization.batching.predictor"]');
  predictor?.toggleAttribute("hidden", !applies("synchronization.batching.predictor"));
  show("preview", json);
  const quoted = json.replaceAll("'", "'\\''");
  show("curl", `curl -X POST ${form.dataset.url} \\\n  -H "Authorization: Bearer $PACELINE_API_TOKEN" \\\n  -H "Content-Type: application/json" \\\n  -H "Idempotency-Key: ${key}" \\\n  -d '${quoted}'`);
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

/** The form's field for a path of the server's: itself, the one it is part of, or the first within it. @param {string} path */
function fieldFor(path) {
  const names = fields().map((field) => field.name);
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

/** Ask what the spec would lead to; nothing is submitted. */
async function check() {
  clearErrors();
  const response = await send("POST", form.dataset.checkUrl ?? "", spec());
  if (!response) return showMessage("The control plane is unreachable.");
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) return showProblem(answer);
  finding.textContent = `The spec is valid: ${answer.finding}.`;
  finding.hidden = false;
  return undefined;
}

/** Whether the page is being left for the job's. */
async function submitJob() {
  const response = await send("POST", form.dataset.url ?? "", spec(), { "Idempotency-Key": key });
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
  } else if (field.dataset.kind) {
    field.removeAttribute("aria-invalid");
    show(`e-${field.name}`, "");
  }
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

fill(copied ?? Object.values(presets)[0]);
