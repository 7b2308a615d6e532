// @ts-check
// The list of jobs: visible columns (kept in the URL) and actions on several jobs at once.

import { toast } from "./actions.js";
import { keep } from "./address.js";
import { problemOf, send } from "./rest.js";

const MOST_COMPARED = 6;

/** IDs of the selected jobs; the list may be refetched meanwhile. @type {Map<string, boolean>} whether the user can stop it */
const picked = new Map();
const bulk = document.getElementById("bulk");
const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("bulk-dialog"));

/** @returns {HTMLInputElement[]} */
function boxes() {
  return [...document.querySelectorAll('#jobs-table input[name="job"]')].map((each) => /** @type {HTMLInputElement} */ (each));
}

function live() {
  return [...picked].filter(([, stops]) => stops).map(([job]) => job);
}

function show() {
  for (const box of boxes()) {
    box.checked = picked.has(box.value);
    if (box.checked) picked.set(box.value, box.dataset.stops === "yes");
  }
  const all = /** @type {HTMLInputElement | null} */ (document.getElementById("pick-all"));
  if (all) all.checked = boxes().length > 0 && boxes().every((box) => box.checked);
  if (!bulk) return;
  bulk.hidden = picked.size === 0;
  const count = document.getElementById("bulk-count");
  if (count) count.textContent = picked.size === 1 ? "1 job" : `${picked.size} jobs`;
  const compare = /** @type {HTMLAnchorElement | null} */ (document.getElementById("bulk-compare"));
  if (compare) {
    compare.hidden = picked.size < 2 || picked.size > MOST_COMPARED;
    compare.search = `?jobs=${[...picked.keys()].join(",")}`;
  }
  const stop = /** @type {HTMLButtonElement | null} */ (document.getElementById("bulk-stop"));
  if (stop) stop.hidden = live().length === 0;
  const effect = document.getElementById("bulk-effect");
  const named = live().map((job) => `#${job}`).join(", ");
  if (effect) effect.textContent = `Jobs ${named}: their workers and servers stop immediately and their slots become free. The jobs cannot be resumed. Their measurements are kept.`;
}

async function stopAll() {
  const requests = live().map(async (job) => {
    const response = await send("POST", `/api/v1/jobs/${job}/actions/stop`, {});
    if (response?.ok) return null;
    const problem = await problemOf(response);
    return { problem, reason: problem?.detail ?? `job ${job}: ${response ? `rejected (status ${response.status})` : "the control plane is unreachable"}` };
  });
  const refused = (await Promise.all(requests)).filter((each) => each !== null);
  const done = requests.length - refused.length;
  if (done) toast(`Stop of ${done === 1 ? "1 job" : `${done} jobs`} requested.`, false, true);
  for (const { reason, problem } of refused) toast(reason, true, false, problem);
  picked.clear();
  dialog?.close();
  show();
}

/** @param {HTMLFieldSetElement} columns */
function hide(columns) {
  const hidden = [...columns.querySelectorAll("input:not(:checked)")].map((each) => /** @type {HTMLInputElement} */ (each).value);
  keep("hide", hidden.join(","));
  document.getElementById("jobs-table")?.setAttribute("data-hide", hidden.join(" "));
}

document.addEventListener("change", (event) => {
  const box = /** @type {HTMLInputElement} */ (event.target);
  if (box.id === "pick-all") for (const each of boxes()) box.checked ? picked.set(each.value, each.dataset.stops === "yes") : picked.delete(each.value);
  else if (box.name === "job") box.checked ? picked.set(box.value, box.dataset.stops === "yes") : picked.delete(box.value);
  else if (box.closest("#columns")) return hide(/** @type {HTMLFieldSetElement} */ (box.closest("#columns")));
  return show();
});
document.addEventListener("click", (event) => {
  const button = /** @type {Element} */ (event.target).closest("button");
  if (button?.id === "bulk-clear") {
    picked.clear();
    show();
  }
  if (button?.id === "bulk-confirm") void stopAll();
});
document.body.addEventListener("htmx:afterSettle", show);
show();
