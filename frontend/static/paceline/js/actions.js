// @ts-check
// What buttons do: open a dialog, copy a command, send a POST, PATCH or DELETE to REST and show the result.

import { problemOf, send } from "./rest.js";

/** @typedef {import("./rest.js").Problem} Problem */

/** An error as an element: title, detail, and the trace id to copy. @param {string} text @param {Problem | null} problem */
function sentenceOf(text, problem = null) {
  const words = document.createElement("span");
  if (problem?.title) words.append(Object.assign(document.createElement("strong"), { textContent: problem.title }), document.createElement("br"));
  words.append(text);
  if (problem?.trace_id) words.append(traced(problem.trace_id));
  return words;
}

/** Show the text in a form's alert; an empty text hides the alert. @param {HTMLElement | null} place @param {string} text @param {Problem | null} problem */
export function alarm(place, text, problem = null) {
  place?.replaceChildren(...(text ? [sentenceOf(text, problem)] : []));
  place?.toggleAttribute("hidden", !text);
}

/** @param {string} text @param {boolean} bad @param {boolean} audited whether the action is in the audit log @param {Problem | null} problem */
export function toast(text, bad = false, audited = false, problem = null) {
  const place = document.getElementById("toasts");
  const note = document.createElement("div");
  note.className = bad ? "toast toast-bad" : "toast";
  note.append(sentenceOf(text, problem));
  if (audited) note.append(" ", Object.assign(document.createElement("a"), { href: "/audit/", textContent: "Audit" }));
  place?.append(note);
  setTimeout(() => note.remove(), bad ? 12_000 : 6_000);
}

/** A button that copies the trace id, under which the web process logged the error. @param {string} id */
function traced(id) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "trace-id", textContent: `Copy trace id ${id}` });
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(id).then(
      () => (button.textContent = "Copied."),
      // Browsers provide no clipboard without TLS, except on loopback: select the text instead.
      () => getSelection()?.selectAllChildren(button)
    );
  });
  return button;
}

/** Ask for confirmation, with the effect, before a button's action. @param {HTMLButtonElement} button */
function ask(button) {
  const dialog = document.getElementById("ask-dialog");
  const confirm = document.getElementById("ask-confirm");
  if (!(dialog instanceof HTMLDialogElement) || !(confirm instanceof HTMLButtonElement)) return;
  for (const [id, text] of [["ask-title", button.dataset.ask], ["ask-effect", button.dataset.effect]]) {
    const place = document.getElementById(id ?? "");
    if (place) place.textContent = text ?? "";
  }
  confirm.textContent = button.dataset.word ?? "Confirm";
  for (const name of ["post", "method", "body", "ifMatch", "done", "then"]) {
    if (button.dataset[name] === undefined) delete confirm.dataset[name];
    else confirm.dataset[name] = button.dataset[name];
  }
  choices(button, confirm);
  confirm.className = `button button-${button.classList.contains("button-danger") ? "danger" : "primary"}`;
  dialog.showModal();
}

/**
 * The choice in the dialog: ``data-choices`` has values and their labels, the first is the default, and the selected value is
 * sent under the name ``data-choice``. @param {HTMLButtonElement} button @param {HTMLButtonElement} confirm
 */
function choices(button, confirm) {
  const place = document.getElementById("ask-choice");
  const [label, select] = place?.children ?? [];
  if (!place || !(select instanceof HTMLSelectElement)) return;
  place.hidden = !button.dataset.choices;
  if (place.hidden) return;
  label.textContent = button.dataset.label ?? "";
  select.replaceChildren(...JSON.parse(button.dataset.choices ?? "[]").map((/** @type {[number, string]} */ [value, word]) => new Option(word, String(value))));
  select.onchange = () => {
    confirm.dataset.body = JSON.stringify({ ...JSON.parse(button.dataset.body ?? "{}"), [button.dataset.choice ?? "value"]: Number(select.value) });
    confirm.dataset.done = button.dataset.done?.replace("{choice}", select.selectedOptions[0].text);
  };
  select.onchange(new Event("change"));
}

/** Clear a dialog whose content is fetched, so that it does not show the previous subject while it loads. @param {HTMLElement} body */
function loading(body) {
  const text = document.getElementById(body.dataset.loading ?? "");
  if (text instanceof HTMLTemplateElement) body.replaceChildren(text.content.cloneNode(true));
}

for (const failed of ["htmx:responseError", "htmx:sendError"]) {
  document.body.addEventListener(failed, (event) => {
    const { target, xhr } = /** @type {CustomEvent} */ (event).detail;
    const words = target?.hasAttribute("data-loading") ? target.querySelector("p") : null;
    if (words) words.textContent = xhr?.status ? `This could not be loaded (status ${xhr.status}). Reload the page and try again.` : "The control plane is unreachable. Try again.";
  });
}

/** @param {HTMLButtonElement} button @returns {"POST" | "PUT" | "PATCH" | "DELETE"} */
function methodOf(button) {
  const method = button.dataset.method;
  return method === "PUT" || method === "PATCH" || method === "DELETE" ? method : "POST";
}

/** @param {HTMLButtonElement} button */
async function post(button) {
  button.disabled = true;
  /** @type {Record<string, string>} */
  const headers = button.dataset.ifMatch ? { "If-Match": button.dataset.ifMatch } : {};
  const response = await send(methodOf(button), button.dataset.post ?? "", JSON.parse(button.dataset.body ?? "{}"), headers);
  if (response?.ok && button.dataset.then) return location.assign(button.dataset.then);
  if (response?.ok) {
    document.dispatchEvent(new CustomEvent("paceline:requested"));
    toast(button.dataset.done ?? "Done.", false, true);
  } else {
    const problem = await problemOf(response);
    toast(problem?.detail ?? (response ? `Request rejected (status ${response.status}).` : "The control plane is unreachable; nothing was changed."), true, false, problem);
  }
  button.disabled = false;
  button.closest("dialog")?.close();
}

/** @param {HTMLElement} button */
async function copy(button) {
  const source = document.getElementById(button.dataset.copies ?? "");
  if (!source) return;
  try {
    await navigator.clipboard.writeText(source.textContent ?? "");
    toast("Copied.");
  } catch {
    // Browsers provide no clipboard without TLS, except on loopback: select the text instead.
    getSelection()?.selectAllChildren(source);
    toast("Text selected: press Ctrl+C to copy.");
  }
}

/** The URL contains all view settings. @param {HTMLElement} button */
async function copyLink(button) {
  button.closest("details")?.removeAttribute("open");
  try {
    await navigator.clipboard.writeText(location.href);
    toast("Link copied.");
  } catch {
    toast("No clipboard access: copy the URL from the address bar.");
  }
}

document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  const button = target.closest("button");
  const menu = document.querySelector("details.menu[open]");
  if (menu && !menu.contains(target)) menu.removeAttribute("open");
  if (button?.dataset.opens) {
    menu?.removeAttribute("open");
    const dialog = document.getElementById(button.dataset.opens);
    if (dialog instanceof HTMLDialogElement) {
      for (const body of dialog.querySelectorAll("[data-loading]")) loading(/** @type {HTMLElement} */ (body));
      dialog.showModal();
    }
  }
  if (button?.dataset.closes) /** @type {HTMLDialogElement | null} */ (document.getElementById(button.dataset.closes))?.close();
  if (button?.dataset.ask) ask(button);
  else if (button?.dataset.post) void post(button);
  if (button?.dataset.copies) void copy(button);
  if (button?.hasAttribute("data-copies-link")) void copyLink(button);
});

document.addEventListener("keydown", (event) => {
  const menu = document.querySelector("details.menu[open]");
  if (event.key !== "Escape" || !menu) return;
  menu.removeAttribute("open");
  menu.querySelector("summary")?.focus();
});
