// @ts-check
// What a person has chosen, kept in the browser. Storage may be forbidden; then everything is as at first.

export const KEYS = "paceline.keys";

/** Whether single keys do anything (WCAG 2.1.4: they can be switched off). */
export function keysAreOn() {
  try {
    return localStorage.getItem(KEYS) !== "off";
  } catch {
    return true;
  }
}
