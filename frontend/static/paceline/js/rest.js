// @ts-check
// Asks the REST API as the signed-in user, and reads the problem where it refuses.

/** @typedef {{title?: string, detail?: string, trace_id?: string, errors?: {field: string, found: any, expected: string}[]}} Problem what the server says of a refusal */

/** The token that Django wants with every change that a session makes. */
function csrf() {
  return document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1] ?? "";
}

/**
 * Nothing: the control plane is unreachable.
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method @param {string} url @param {any} document_ @param {Record<string, string>} headers @returns {Promise<Response | null>}
 */
export function send(method, url, document_, headers = {}) {
  const usual = { "X-CSRFToken": csrf(), "Content-Type": "application/json", Accept: "application/json" };
  return fetch(url, { method, headers: { ...usual, ...headers }, body: typeof document_ === "string" ? document_ : JSON.stringify(document_), credentials: "same-origin" }).catch(() => null);
}

/** The problem that an answer carries, if it carries one. @param {Response | null | undefined} response @returns {Promise<Problem | null>} */
export async function problemOf(response) {
  return (await response?.json().catch(() => null)) ?? null;
}
