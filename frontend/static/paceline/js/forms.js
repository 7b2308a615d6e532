// @ts-check
// Forms in dialogs that are sent to REST: fields of kind "address" go into the URL, the others into the document.
// Buttons that open such a dialog may set its field values, its URL and its heading.

import { alarm, toast } from "./actions.js";
import { problemOf, send } from "./rest.js";

/** @typedef {HTMLInputElement | HTMLSelectElement} Field */

/** @param {HTMLFormElement} form @returns {Field[]} */
function fieldsOf(form) {
  return [...form.querySelectorAll("input[name], select[name]")].map((each) => /** @type {Field} */ (each));
}

/** An empty count means no limit; text that is not a number is sent unchanged and rejected by the server. @param {Field} field */
function valueOf(field) {
  const text = field.value.trim();
  if (field.dataset.kind === "size") return text === "" ? null : text;
  if (field.dataset.kind !== "count" && field.dataset.kind !== "number") return text;
  if (text === "") return null;
  return Number.isFinite(Number(text)) ? Number(text) : text;
}

/** @param {HTMLFormElement} form */
async function submit(form) {
  const fields = fieldsOf(form);
  /** @param {string} url @param {Field} field */
  const filled = (url, field) => url.replace(`{${field.name}}`, encodeURIComponent(field.value.trim()));
  const inUrl = fields.filter((field) => field.dataset.kind === "address");
  const url = inUrl.reduce(filled, form.dataset.url ?? "");
  const values = fields.filter((field) => !inUrl.includes(field)).map((field) => [field.name, valueOf(field)]);
  const document_ = { ...JSON.parse(form.dataset.body ?? "{}"), ...Object.fromEntries(values) };
  const place = /** @type {HTMLElement | null} */ (form.querySelector("[role=alert]"));
  const method = /** @type {"POST" | "PUT" | "PATCH"} */ (form.dataset.method ?? "POST");
  const response = await send(method, url, document_);
  if (!response?.ok) {
    const problem = await problemOf(response);
    const wrong = problem?.errors?.map((each) => `${each.field}: ${each.expected}`).join("; ");
    return alarm(place, wrong || problem?.detail || "The control plane is unreachable; nothing was changed.", problem);
  }
  alarm(place, "");
  if (form.dataset.then) return location.assign(form.dataset.then.replace("{id}", String((await response.json()).id)));
  form.closest("dialog")?.close();
  document.dispatchEvent(new CustomEvent("paceline:requested"));
  return toast(form.dataset.done ?? "Done.", false, true);
}

/** Apply the values on the button that opens a dialog. @param {HTMLElement} button */
function prepare(button) {
  const dialog = document.getElementById(button.dataset.opens ?? "");
  const form = /** @type {HTMLFormElement | null} */ (dialog?.querySelector("form.rest-form") ?? null);
  if (!form) return;
  alarm(form.querySelector("[role=alert]"), "");
  const heading = dialog?.querySelector("h2");
  if (heading && button.dataset.heading) heading.textContent = button.dataset.heading;
  if (button.dataset.url) form.dataset.url = button.dataset.url;
  for (const [name, value] of Object.entries(JSON.parse(button.dataset.fill ?? "{}"))) {
    const field = /** @type {Field | null} */ (form.elements.namedItem(name));
    if (!field) continue;
    field.value = value === null ? "" : String(value);
    // The user is fixed when a role is changed.
    if (field instanceof HTMLInputElement && field.dataset.kind === "address") field.readOnly = field.value !== "";
  }
}

document.addEventListener("click", (event) => {
  const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("button[data-opens]"));
  if (button) prepare(button);
});
document.addEventListener("submit", (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (!form.classList.contains("rest-form")) return;
  event.preventDefault();
  const button = form.querySelector("button:not([type])");
  button?.setAttribute("disabled", "");
  void submit(form).finally(() => button?.removeAttribute("disabled"));
});
