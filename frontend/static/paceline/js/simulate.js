// @ts-check
// The form of a simulation: the policies of the scenario, or of the recorded job, are offered, and errors of
// REST are shown.

import { alarm } from "./actions.js";
import { problemOf, send } from "./rest.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("simulate-form"));
const scenario = /** @type {HTMLSelectElement} */ (document.getElementById("scenario"));
const button = /** @type {HTMLButtonElement} */ (document.getElementById("simulate-button"));
/** The ids of the sliders that vary the scenario. */
const SLIDERS = ["workers", "bandwidth", "global_batch"];
const job = /** @type {HTMLInputElement} */ (document.getElementById("job"));
const jobError = /** @type {HTMLElement} */ (document.getElementById("job-error"));
const jobPicks = /** @type {HTMLElement} */ (document.getElementById("job-picks"));
/** The scenario's value for the machines of a recorded job. */
const JOB = "job";
const alertBox = /** @type {HTMLElement} */ (document.getElementById("simulate-alert"));

/** The value of a slider: the number, its text, and whether it equals the scenario's. @param {string} name */
function slider(name) {
  const input = /** @type {HTMLInputElement} */ (document.getElementById(name));
  const own = picked()?.dataset ?? {};
  const at = Number(input.value);
  if (name === "workers") return { input, number: at, words: String(at), usual: at === Number(own.workers) };
  if (name === "bandwidth") {
    const words = input.disabled ? "unlimited" : at ? `${2 ** at}×` : "unchanged";
    return { input, number: 2 ** at, words, usual: at === 0 };
  }
  const samples = Math.max(1, Math.round(Number(own.batch) * 2 ** (at / 4)));
  return { input, number: samples, words: String(samples), usual: at === 0 };
}

/** The selected scenario by its REST name. */
function selectedScenario() {
  return scenario.value === JOB ? `job-${job.value.trim().replace(/^0+(?=\d)/, "")}` : scenario.value;
}

/** The form section of the selected scenario; null if there is no such job. @returns {HTMLElement | null} */
function picked() {
  return form.querySelector(`[data-scenario="${CSS.escape(selectedScenario())}"]`);
}

/** Show every slider's value beside it and to screen readers. */
function showSliders() {
  const own = picked()?.dataset;
  for (const name of SLIDERS) {
    const { input, words, usual } = slider(name);
    input.setAttribute("aria-valuetext", words);
    const output = document.getElementById(`${name}-value`);
    if (output) output.textContent = !own ? "" : usual || name === "bandwidth" ? words : `${words} (default ${name === "workers" ? own.workers : own.batch})`;
  }
}

/** The differences from the scenario. @returns {Record<string, number>} */
function variation() {
  if (!picked()) return {};
  const moved = SLIDERS.filter((name) => !slider(name).usual);
  return Object.fromEntries(moved.map((name) => [name, slider(name).number]));
}

/** Reset all sliders to the scenario's values. */
function reset() {
  const { workers, limited } = picked()?.dataset ?? {};
  for (const name of SLIDERS) slider(name).input.disabled = !workers;
  if (!workers) return;
  const input = slider("workers").input;
  input.max = String(Math.max(4, 2 * Number(workers)));
  input.value = String(workers);
  slider("bandwidth").input.value = "0";
  slider("bandwidth").input.disabled = limited !== "yes";
  slider("global_batch").input.value = "0";
}

function offer() {
  for (const set of form.querySelectorAll("[data-scenario]")) set.toggleAttribute("hidden", set.getAttribute("data-scenario") !== selectedScenario());
  document.getElementById("job-field")?.toggleAttribute("hidden", scenario.value !== JOB);
  reset();
  showSliders();
}

/** Load the possible simulations on the machines of the typed job, or the reason why there are none. */
async function look() {
  const number = job.value.trim();
  jobError.textContent = "";
  if (number && !picked()) {
    const response = await fetch(`/simulations/job/?${new URLSearchParams({ job: number })}`, { credentials: "same-origin" }).catch(() => null);
    const answer = response ? await response.text() : "the control plane is unreachable";
    if (number !== job.value.trim()) return;
    // A signed-out user is redirected to another page.
    if (response?.redirected) location.reload();
    else if (response?.ok) jobPicks.innerHTML = answer;
    else jobError.textContent = response && response.status !== 400 ? `failed to load this job (status ${response.status})` : answer;
  }
  offer();
}

/** Start the simulation; on an error the form shows the reason. */
async function submit() {
  const ticked = picked()?.querySelectorAll("input:checked") ?? [];
  const policies = [...ticked].map((each) => /** @type {HTMLInputElement} */ (each).value);
  const seed = /** @type {HTMLInputElement} */ (form.elements.namedItem("seed")).value.trim();
  const request = { scenario: selectedScenario(), policies, ...variation(), seed: /^\d+$/.test(seed) ? Number(seed) : seed };
  const team = /** @type {HTMLSelectElement | null} */ (document.getElementById("team"))?.value;
  const response = await send("POST", `/api/v1/simulations${team ? `?team=${encodeURIComponent(team)}` : ""}`, request);
  const answer = /** @type {any} */ (await problemOf(response));
  if (response?.ok) location.assign(`/simulations/${answer.id}/`);
  else if (scenario.value === JOB && answer?.errors?.some((/** @type {any} */ each) => each.field === "scenario")) jobError.textContent = answer.detail;
  else if (!response) alarm(alertBox, "The control plane is unreachable; the simulation was not started.");
  else alarm(alertBox, answer?.errors?.map((/** @type {any} */ each) => `${each.field}: expected ${each.expected}`).join("; ") || answer?.detail || `Request rejected (status ${response.status}).`, answer);
  return response?.ok === true;
}

scenario.addEventListener("change", offer);
job.addEventListener("change", () => void look());
for (const name of SLIDERS) document.getElementById(name)?.addEventListener("input", showSliders);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.disabled) return;
  if (scenario.value === JOB && !job.value.trim()) {
    jobError.textContent = "expected the ID of a recorded job";
    job.focus();
    return;
  }
  button.disabled = true;
  alertBox.hidden = true;
  button.disabled = await submit();
});
offer();
