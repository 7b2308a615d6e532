// @ts-check
// The dialog that changes a running job's policies: it reads the current ones when it opens, with explanations, the predicted
// savings of other policies, and the ranges of parameters; only changes are sent.

import { alarm, toast } from "./actions.js";
import { Parameters } from "./parameters.js";
import { problemOf, send } from "./rest.js";

/** @typedef {import("./parameters.js").Entry & {question: string}} Policy */
/** @typedef {{batching: string, barrier: string, saved: number, saved_low: number, saved_high: number, iteration_s: number, waiting: number, samples: number, model_error: number, unfinished: boolean}} Alternative */

const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("policy-dialog"));
const form = /** @type {HTMLFormElement | null} */ (document.getElementById("policy-form"));
const alertBox = document.getElementById("policy-alert");
const prediction = document.getElementById("policy-prediction");
/** From this share of the samples on, two runs count as the same amount of work. */
const ALL = 0.995;

/** @type {Record<string, any>} */
let now = {};
let etag = "";
/** @type {Policy[]} */
let policies = [];
/** @type {Alternative[]} */
let alternatives = [];

/** The parameter inputs of each kind of policy. @type {Map<string, Parameters>} */
const questions = new Map(
  [...(form?.querySelectorAll("[data-parameters]") ?? [])].map((place) => {
    const question = place.getAttribute("data-parameters") ?? "";
    return [question, new Parameters(place, question)];
  })
);

/** A choice without its name. @param {Record<string, any>} choice */
function settingsOf(choice) {
  return Object.fromEntries(Object.entries(choice).filter(([name]) => name !== "name"));
}

/** @param {string} question */
function chosen(question) {
  return /** @type {RadioNodeList} */ (form?.elements.namedItem(question)).value;
}

/** @param {string} question @param {string} name */
function policy(question, name) {
  return policies.find((each) => each.question === question && each.name === name);
}

/** @param {string} text @param {import("./rest.js").Problem | null} problem */
function showMessage(text, problem = null) {
  alarm(alertBox, text, problem);
}

/** @param {string} url @returns {Promise<any>} empty without a response: the dialog works without it */
async function list(url) {
  const response = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" }).catch(() => null);
  return response?.ok ? response.json() : [];
}

async function open() {
  const asked = fetch(form?.dataset.url ?? "", { headers: { Accept: "application/json" }, cache: "no-store", credentials: "same-origin" });
  const [response, found, others] = await Promise.all([asked, policies.length ? policies : list(form?.dataset.policies ?? ""), list(form?.dataset.alternatives ?? "")]);
  if (!response.ok) return toast(`Failed to load the current policies (status ${response.status}).`, true, false, await problemOf(response));
  [policies, alternatives] = [found, others];
  etag = response.headers.get("ETag") ?? "";
  now = await response.json();
  showMessage(Object.keys(now.pending).length ? `A change is already pending: ${Object.entries(now.pending).map(([question, choice]) => `${question} → ${choice.name}`).join(", ")}.` : "");
  for (const question of questions.keys()) {
    for (const radio of form?.querySelectorAll(`input[type="radio"][name="${question}"]`) ?? []) /** @type {HTMLInputElement} */ (radio).checked = /** @type {HTMLInputElement} */ (radio).value === now[question].name;
    ask(question);
  }
  predict();
  dialog?.showModal();
}

/** Show the parameters of the selected policy: the current values, or the defaults of another policy. @param {string} question */
function ask(question) {
  const name = chosen(question);
  const given = name === now[question].name ? settingsOf(now[question]) : {};
  const names = (/** @type {string} */ kind) => policies.filter((each) => each.question === kind).map((each) => each.name);
  const count = questions.get(question)?.show(policy(question, name), given, names) ?? 0;
  const drawer = /** @type {HTMLDetailsElement | null | undefined} */ (form?.querySelector(`[data-parameters="${question}"]`)?.closest("details"));
  if (drawer) [drawer.hidden, drawer.open] = [count === 0, count <= 2 && name !== now[question].name];
  explain(question, name);
}

/** @param {string} question @param {string} name */
function explain(question, name) {
  const entry = policy(question, name);
  const place = document.getElementById(`about-${question}`);
  if (place) place.textContent = entry ? `${name}: ${entry.explanation}${entry.paper ? ` (${entry.paper})` : ""}${name === now[question]?.name ? " In use now." : ""}` : "";
}

/** The simulation of these two choices. @param {string} batching @param {string} barrier */
function simulated(batching, barrier) {
  return alternatives.find((each) => each.batching === batching && each.barrier === barrier);
}

/** The two choices that simulations vary, with one of them replaced. @param {Record<string, string>} other */
function pair(other = {}) {
  const of = (/** @type {string} */ question) => other[question] ?? (questions.has(question) ? chosen(question) : (now[question]?.name ?? ""));
  return /** @type {[string, string]} */ ([of("batching"), of("barrier")]);
}

/** @param {number} share */
function percent(share) {
  return `${Math.round(Math.abs(share) * 100)}%`;
}

/** Show the predicted saving of each choice beside its name, and of the whole selection below. */
function predict() {
  for (const place of form?.querySelectorAll("[data-saves]") ?? []) {
    const question = place.closest("[data-question]")?.getAttribute("data-question") ?? "";
    const name = place.getAttribute("data-saves") ?? "";
    const found = question === "batching" || question === "barrier" ? simulated(...pair({ [question]: name })) : undefined;
    place.textContent = name === now[question]?.name ? "now" : found && !found.unfinished ? `${found.saved >= 0 ? "saves" : "costs"} ${percent(found.saved)}` : "";
  }
  if (prediction) prediction.textContent = sentence();
}

function sentence() {
  if ([...questions.keys()].every((question) => chosen(question) === now[question].name)) return "These are the current policies.";
  const found = simulated(...pair());
  if (!found) return alternatives.length ? "Not predicted: this combination was not simulated. The decision log shows its measured effect." : "No prediction yet: other policies are being simulated on this job's last minutes.";
  if (found.unfinished) return "Predicted: the job does not complete under these policies.";
  const runs = `${found.saved_low < 0 ? "\u2212" : ""}${percent(found.saved_low)} to ${found.saved_high < 0 ? "\u2212" : ""}${percent(found.saved_high)} over runs, model error ${percent(found.model_error)}`;
  const less = found.samples < ALL ? ` It processes only ${percent(found.samples)} of the samples.` : "";
  const asked = questions.get("barrier")?.read().sampling === "peers" ? " With peer sampling, workers make the same decisions as with central sampling; each step takes one more request and reply." : "";
  return `Predicted with default parameters: ${found.saved >= 0 ? "saves" : "costs"} ${percent(found.saved)} of the time (${runs}); iterations of ${Math.round(found.iteration_s * 1000)} ms, ${percent(found.waiting)} waiting.${less}${asked}`;
}

function changesMade() {
  const choices = [...questions].map(([question, parameters]) => [question, { name: chosen(question), ...parameters.read() }]);
  return Object.fromEntries(choices.filter(([question, choice]) => JSON.stringify(sorted(choice)) !== JSON.stringify(sorted(now[String(question)]))));
}

/** @param {any} choice */
function sorted(choice) {
  return Object.entries(choice).sort(([a], [b]) => (a < b ? -1 : 1));
}

async function submitChanges() {
  const changes = changesMade();
  if (!Object.keys(changes).length) return showMessage("No changes: these are the current policies.");
  const response = await send("PATCH", form?.dataset.url ?? "", changes, { "If-Match": etag });
  if (!response?.ok) {
    const problem = await problemOf(response);
    return showMessage(problem?.detail ?? (response ? `Request rejected (status ${response.status}).` : "The control plane is unreachable; nothing was changed."), problem);
  }
  document.dispatchEvent(new CustomEvent("paceline:requested"));
  dialog?.close();
  return toast("Change requested. It takes effect when its generation starts.", false, true);
}

document.addEventListener("click", (event) => {
  const button = /** @type {Element} */ (event.target).closest("button");
  if (button?.id === "change-policy") void open();
  if (button?.id === "policy-cancel") dialog?.close();
});
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  void submitChanges();
});
form?.addEventListener("change", (event) => {
  const radio = /** @type {HTMLInputElement} */ (event.target);
  if (radio.type === "radio") ask(radio.name);
  predict();
});
// Pointing at a policy shows its description.
form?.addEventListener("pointerover", (event) => {
  const radio = /** @type {Element} */ (event.target).closest("label")?.querySelector('input[type="radio"]');
  if (radio instanceof HTMLInputElement) explain(radio.name, radio.value);
});
form?.addEventListener("pointerout", (event) => {
  const radio = /** @type {Element} */ (event.target).closest("label")?.querySelector('input[type="radio"]');
  if (radio instanceof HTMLInputElement) explain(radio.name, chosen(radio.name));
});
