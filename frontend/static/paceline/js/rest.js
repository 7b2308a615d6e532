// @ts-check
// Calls the REST API as the signed-in user and reads its error documents.

/** @typedef {{title?: string, detail?: string, trace_id?: string, errors?: {field: string, found: any, expected: string}[]}} Problem an error document (RFC 9457) */

/** The CSRF token that Django requires with every change. */
function csrf() {
  return document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1] ?? "";
}

/**
 * Sends a request; null if the control plane is unreachable.
 * @param {"POST" | "PUT" | "PATCH" | "DELETE"} method @param {string} url @param {any} document_ @param {Record<string, string>} headers @returns {Promise<Response | null>}
 */
export function send(method, url, document_, headers = {}) {
  const usual = { "X-CSRFToken": csrf(), "Content-Type": "application/json", Accept: "application/json" };
  return fetch(url, { method, headers: { ...usual, ...headers }, body: typeof document_ === "string" ? document_ : JSON.stringify(document_), credentials: "same-origin" }).catch(() => null);
}

/** The problem document of a response, if it has one. @param {Response | null | undefined} response @returns {Promise<Problem | null>} */
export async function problemOf(response) {
  return (await response?.json().catch(() => null)) ?? null;
}
