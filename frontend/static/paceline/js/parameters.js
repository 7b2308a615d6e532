// @ts-check
// Inputs for the parameters of a policy, a workload or a data set, from the JSON schema of the catalogue: each with its range, its
// default and a description. Unchanged defaults are not sent.

import { make } from "./elements.js";
import { read, written } from "./settings.js";

/** @typedef {{name: string, explanation: string, paper?: string, schema: {properties?: Record<string, any>}, parts?: Record<string, string>}} Entry */

/** A value as display text. @param {any} value */
function shown(value) {
  if (value === null) return "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** @param {number} value */
function grouped(value) {
  return Math.abs(value) >= 10_000 ? value.toLocaleString("en") : String(value);
}

/** ``1 to 1,024``, ``above 0, at most 1``. @param {any} schema */
function range(schema) {
  const low = schema.minimum ?? schema.exclusiveMinimum;
  const high = schema.maximum ?? schema.exclusiveMaximum;
  if (schema.minimum !== undefined && schema.maximum !== undefined) return `${grouped(low)} to ${grouped(high)}`;
  const parts = [];
  if (low !== undefined) parts.push(`${schema.minimum === undefined ? "above" : "at least"} ${grouped(low)}`);
  if (high !== undefined) parts.push(`${schema.maximum === undefined ? "below" : "at most"} ${grouped(high)}`);
  return parts.join(", ");
}

/** @param {any} schema */
function hint(schema) {
  const sentence = (schema.description ?? "").replace(/\.$/, "");
  return [sentence, range(schema), `default ${shown(schema.default)}`].filter(Boolean).join("; ");
}

/** The values of a choice, or nothing for free text. @param {any} schema @param {string[] | undefined} names of a part */
function choices(schema, names) {
  if (schema.type === "boolean") return ["true", "false"];
  return names ?? schema.enum;
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

export class Parameters {
  /** @param {Element} place @param {string} prefix of the inputs' names @param {() => void} changed */
  constructor(place, prefix, changed = () => {}) {
    this.place = place;
    this.prefix = prefix;
    /** Given values for which the entry has no input. @type {Record<string, any>} */
    this.rest = {};
    place.addEventListener("input", changed);
  }

  /** @param {Entry | undefined} entry @param {Record<string, any>} given @param {(question: string) => string[]} names of the policies of a kind */
  show(entry, given = {}, names = () => []) {
    if (!entry) return this.free(given);
    const known = Object.entries(entry.schema.properties ?? {});
    this.rest = Object.fromEntries(Object.entries(given).filter(([name]) => !known.some(([each]) => each === name)));
    this.place.replaceChildren(...known.map(([name, schema]) => this.field(name, schema, given[name], entry.parts?.[name] ? names(entry.parts[name]) : undefined)));
    return known.length;
  }

  /** An entry outside the catalogue, such as a custom workload, accepts any parameters. @param {Record<string, any>} given */
  free(given) {
    this.rest = {};
    const id = `${this.prefix}.*`;
    const input = /** @type {HTMLInputElement} */ (make("input", { id: `f-${id}`, "data-free": "", autocomplete: "off", placeholder: "name=value, name=value", "aria-describedby": `e-${id}` }));
    input.value = written(given);
    this.place.replaceChildren(make("div", { class: "field", "data-field": id }, make("label", { for: `f-${id}` }, "name=value, name=value"), input, make("p", { class: "field-error", id: `e-${id}` })));
    return 1;
  }

  /** @param {string} name @param {any} schema @param {any} value @param {string[] | undefined} names */
  field(name, schema, value, names) {
    const id = `${this.prefix}.${name}`;
    const words = choices(schema, schema.type === "array" ? undefined : names);
    const listed = words && (value === undefined || words.includes(shown(value)));
    const input = listed ? this.list(words, schema) : make("input", { placeholder: shown(schema.default), autocomplete: "off" });
    for (const [key, text] of Object.entries({ id: `f-${id}`, name: id, "data-parameter": name, "aria-describedby": `h-${id} e-${id}` })) input.setAttribute(key, text);
    /** @type {HTMLInputElement} */ (input).value = value === undefined ? "" : shown(value);
    return make(
      "div",
      { class: "field", "data-field": id },
      make("label", { for: `f-${id}` }, name),
      input,
      make("p", { class: "hint", id: `h-${id}` }, hint(schema)),
      make("p", { class: "field-error", id: `e-${id}` })
    );
  }

  /** @param {string[]} words @param {any} schema */
  list(words, schema) {
    const select = /** @type {HTMLSelectElement} */ (make("select"));
    select.append(new Option(`default: ${shown(schema.default)}`, ""), ...words.filter((word) => word !== shown(schema.default)).map((word) => new Option(word)));
    return select;
  }

  /** The values that differ from the defaults. @returns {Record<string, any>} */
  read() {
    const inputs = /** @type {NodeListOf<HTMLInputElement>} */ (this.place.querySelectorAll("[data-parameter]"));
    const given = [...inputs].filter((input) => input.value.trim()).map((input) => [input.dataset.parameter, parsed(input.value.trim())]);
    const free = /** @type {HTMLInputElement | null} */ (this.place.querySelector("[data-free]"));
    return { ...this.rest, ...Object.fromEntries(given), ...(free ? read(free.value) : {}) };
  }
}
