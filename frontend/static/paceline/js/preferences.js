// @ts-check
// User preferences, stored in the browser. Storage may be blocked; then the defaults apply.

export const KEYS = "paceline.keys";

/** Whether single-key shortcuts are enabled (WCAG 2.1.4: they can be turned off). */
export function keysAreOn() {
  try {
    return localStorage.getItem(KEYS) !== "off";
  } catch {
    return true;
  }
}
