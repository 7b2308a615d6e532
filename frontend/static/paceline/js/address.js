// @ts-check
// Keeps view settings in the page's URL, so that Back works and a shared link shows the same view.

/** @param {string} name @returns {string} empty: the default */
export function kept(name) {
  return new URLSearchParams(location.search).get(name) ?? "";
}

/** @param {string} name @param {string} value empty for the default */
export function keep(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value);
  else url.searchParams.delete(name);
  history.replaceState(history.state, "", url);
}
