// @ts-check
// What a reader chose to see is kept in the page's address, so that Back works and a link shows the same.

/** @param {string} name @returns {string} nothing: it is as at first */
export function kept(name) {
  return new URLSearchParams(location.search).get(name) ?? "";
}

/** @param {string} name @param {string} value nothing, where it is as at first */
export function keep(name, value) {
  const url = new URL(location.href);
  if (value) url.searchParams.set(name, value);
  else url.searchParams.delete(name);
  history.replaceState(history.state, "", url);
}
