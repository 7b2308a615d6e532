// @ts-check
// The form of a simulation: the scenario's own policies are offered, and REST says what is wrong with a choice.

import { alarm } from "./actions.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("simulate-form"));
const scenario = /** @type {HTMLSelectElement} */ (document.getElementById("scenario"));
const button = /** @type {HTMLButtonElement} */ (document.getElementById("simulate-button"));
const alertBox = /** @type {HTMLElement} */ (document.getElementById("simulate-alert"));

function offer() {
  for (const set of form.querySelectorAll("[data-scenario]")) set.toggleAttribute("hidden", set.getAttribute("data-scenario") !== scenario.value);
}

async function send() {
  const picked = form.querySelectorAll(`[data-scenario="${CSS.escape(scenario.value)}"] input:checked`);
  const policies = [...picked].map((each) => /** @type {HTMLInputElement} */ (each).value);
  const seed = /** @type {HTMLInputElement} */ (form.elements.namedItem("seed")).value.trim();
  const token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1] ?? "";
  const response = await fetch("/api/v1/simulations", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": token },
    credentials: "same-origin",
    body: JSON.stringify({ scenario: scenario.value, policies, seed: /^\d+$/.test(seed) ? Number(seed) : seed }),
  });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) location.assign(`/simulations/${answer.id}/`);
  else alarm(alertBox, answer.errors?.map((/** @type {any} */ each) => `${each.field}: expected ${each.expected}`).join("; ") || answer.detail || `Refused (${response.status}).`, answer);
  return response.ok;
}

scenario.addEventListener("change", offer);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (button.disabled) return;
  button.disabled = true;
  alertBox.hidden = true;
  let gone = false;
  try {
    gone = await send();
  } catch {
    alarm(alertBox, "The control plane cannot be reached; nothing was simulated.");
  } finally {
    button.disabled = gone;
  }
});
offer();
