// @ts-check
// Converts settings between text, ``staleness=3, decay=0.5``, and JSON.

/** @param {Record<string, any>} settings */
export function written(settings) {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
}

/** Numbers, true, false and JSON are read as such, everything else is text. @param {string} text @returns {Record<string, any>} */
export function read(text) {
  const pairs = parts(text).map((part) => {
    const at = part.indexOf("=");
    const value = at < 0 ? "" : part.slice(at + 1).trim();
    return [(at < 0 ? part : part.slice(0, at)).trim(), parsed(value)];
  });
  return Object.fromEntries(pairs);
}

/** At commas, but not within brackets. @param {string} text */
function parts(text) {
  const found = [""];
  let depth = 0;
  for (const letter of text) {
    if ("[{".includes(letter)) depth += 1;
    if ("]}".includes(letter)) depth -= 1;
    if (letter === "," && depth === 0) found.push("");
    else found[found.length - 1] += letter;
  }
  return found.filter((part) => part.trim());
}

/** @param {string} value */
function parsed(value) {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
