// @ts-check
// Changing the four choices of a running job: what holds is read when the dialog opens, and only what differs is sent.

import { alarm, toast } from "./actions.js";
import { problemOf, send } from "./rest.js";
import { read, written } from "./settings.js";

const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("policy-dialog"));
const form = /** @type {HTMLFormElement | null} */ (document.getElementById("policy-form"));
const alertBox = document.getElementById("policy-alert");

/** @type {Record<string, any>} */
let now = {};
let etag = "";

/** A choice without its name. @param {Record<string, any>} choice */
function settingsOf(choice) {
  return written(Object.fromEntries(Object.entries(choice).filter(([name]) => name !== "name")));
}

/** @param {string} name */
function field(name) {
  return /** @type {HTMLInputElement} */ (form?.elements.namedItem(name));
}

function questions() {
  return [...(form?.querySelectorAll("select") ?? [])].map((select) => select.name);
}

/** @param {string} text @param {import("./rest.js").Problem | null} problem */
function showMessage(text, problem = null) {
  alarm(alertBox, text, problem);
}

async function open() {
  const response = await fetch(form?.dataset.url ?? "", { headers: { Accept: "application/json" }, cache: "no-store", credentials: "same-origin" });
  if (!response.ok) return toast(`Failed to load the current policies (status ${response.status}).`, true, false, await problemOf(response));
  etag = response.headers.get("ETag") ?? "";
  now = await response.json();
  showMessage(Object.keys(now.pending).length ? `A change is already pending: ${Object.entries(now.pending).map(([question, choice]) => `${question} → ${choice.name}`).join(", ")}.` : "");
  for (const question of questions()) {
    field(question).value = now[question].name;
    field(`${question}-settings`).value = settingsOf(now[question]);
  }
  dialog?.showModal();
}

function changesMade() {
  const choices = questions().map((question) => [question, { name: field(question).value, ...read(field(`${question}-settings`).value) }]);
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
  document.dispatchEvent(new CustomEvent("paceline:asked"));
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
  // Settings belong to the policy that they were read with.
  const select = /** @type {HTMLSelectElement} */ (event.target);
  if (select.tagName === "SELECT") field(`${select.name}-settings`).value = select.value === now[select.name].name ? settingsOf(now[select.name]) : "";
});
