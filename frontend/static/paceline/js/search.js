// @ts-check
// The search dialog: arrow keys move through the matches, Enter opens the selected or first one. It also saves views and pins charts.

import { toast } from "./actions.js";

const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("search-dialog"));
const field = /** @type {HTMLInputElement | null} */ (document.getElementById("search-all"));
const results = document.getElementById("search-results");

export function openSearch() {
  if (!dialog || dialog.open) return;
  dialog.showModal();
  field?.select();
  /** @type {any} */ (window).htmx.trigger(field, "open");
}

function matches() {
  return /** @type {HTMLAnchorElement[]} */ ([...(results?.querySelectorAll("a") ?? [])]);
}

/** @param {number} step */
function move(step) {
  const found = matches();
  const at = found.indexOf(/** @type {any} */ (document.activeElement)) + step;
  if (at < 0) field?.focus();
  else found[Math.min(at, found.length - 1)]?.focus();
}

/** @param {Record<string, string>} fields @returns {Promise<string>} an error message, or empty */
async function post(url = "", fields = {}) {
  const token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1] ?? "";
  const response = await fetch(url, { method: "POST", headers: { "X-CSRFToken": token }, body: new URLSearchParams(fields), credentials: "same-origin" }).catch(() => null);
  if (response?.ok) return "";
  return response?.status === 400 ? await response.text() : `Not saved (${response ? `status ${response.status}` : "the control plane is unreachable"}).`;
}

/** Save this page's URL, or pin one of its charts, under a name. @param {string} name @param {string} figure */
export async function keepView(name, figure = "") {
  const wrong = await post("/views/", { name, address: location.pathname + location.search, figure });
  toast(wrong || (figure ? `${name} is pinned to your overview.` : `Saved: press / to find ${name}.`), Boolean(wrong));
  return !wrong;
}

dialog?.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Enter" && event.target === field) {
    event.preventDefault();
    matches()[0]?.click();
  }
});
document.getElementById("save-view")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  const name = /** @type {HTMLInputElement} */ (form.elements.namedItem("name"));
  if (!(await keepView(name.value))) return;
  name.value = "";
  dialog?.close();
});
document.addEventListener("click", async (event) => {
  const button = /** @type {Element} */ (event.target).closest("button");
  if (button?.id === "search-open") openSearch();
  if (!button?.dataset.unpin) return;
  const wrong = await post(button.dataset.unpin);
  if (wrong) toast(wrong, true);
  else button.closest(".pin, li")?.remove();
});
