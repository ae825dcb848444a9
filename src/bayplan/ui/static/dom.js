// Elements, and numbers as people read them. Text from the cluster is only ever a text node.

/** @typedef {Node | string | number | null | undefined | false} One */
/** @typedef {One | One[] | One[][] | One[][][]} Child */

/**
 * An element. Keys that start with "on" are listeners, "class" and aria-* are attributes, others properties.
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "width%") made.style.width = `${value}%`;
    else if (key === "left%") made.style.left = `${value}%`;
    else if (key in made && key !== "list" && typeof value !== "object") /** @type {any} */ (made)[key] = value;
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  add(made, children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  add(made, children);
  return made;
}

/** @param {Element} to @param {(Child | Child[])[]} children */
function add(to, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    to.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces what an element contains. @param {Element} to @param {...(Child | Child[])} children */
export function show(to, ...children) {
  to.replaceChildren();
  add(to, children);
}

/** @param {string} id @returns {any} */
export const $ = id => document.getElementById(id);

const ICONS = {
  play: "M4 2l10 6-10 6z", pause: "M3 2h4v12H3zM9 2h4v12H9z", back: "M12 2v12L5 8zM3 2h2v12H3z",
  next: "M4 2v12l7-6zM11 2h2v12h-2z", plus: "M7 2h2v5h5v2H9v5H7V9H2V7h5z",
  close: "M3 4l1-1 4 4 4-4 1 1-4 4 4 4-1 1-4-4-4 4-1-1 4-4z", minus: "M2 7h12v2H2z",
};

/** @param {keyof typeof ICONS} name */
export const icon = name => svg("svg", { width: 14, height: 14, viewBox: "0 0 16 16", "aria-hidden": "true" },
  svg("path", { d: ICONS[name], fill: "currentColor" }));

/** Says something to screen readers. @param {string} text */
export function announce(text) {
  $("note").textContent = text;
}

// Numbers

/** @param {number} value */
export const number = value => value.toLocaleString("en");

/** @param {number} share */
export const percent = share => `${share > 0 && share < 0.005 ? "<1" : Math.round(share * 100)} %`;

const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

/** An amount of a resource in the unit of the API: cpu in thousandths. @param {string} resource @param {number} amount */
export function amount(resource, amount) {
  if (resource === "cpu") return (amount / 1000).toLocaleString("en", { maximumFractionDigits: amount % 1000 ? 2 : 0 });
  if (resource !== "memory" && resource !== "ephemeral-storage") return number(amount);
  let step = 0;
  for (; Math.abs(amount) >= 1024 && step < 5; step++) amount /= 1024;
  return `${amount.toLocaleString("en", { maximumFractionDigits: amount < 10 ? 1 : 0 })}${BINARY[step]}`;
}

const NAMES = { cpu: "CPU", memory: "Memory", pods: "Pods", "ephemeral-storage": "Local storage" };
/** @param {string} resource */
export const resourceName = resource => /** @type {Record<string, string>} */ (NAMES)[resource] ?? resource;

/** @param {number} seconds since the epoch */
export const clock = seconds => new Date(seconds * 1000).toLocaleTimeString("en-GB");

/** @param {number} seconds */
export function duration(seconds) {
  if (seconds < 0.0995) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds), days = Math.floor(whole / 86400), hours = Math.floor(whole / 3600) % 24;
  const minutes = Math.floor(whole / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return `${minutes} min ${whole % 60} s`;
}

/** @param {number} count @param {string} noun */
export const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** The step of the sequential scale for a share from 0 to 1. @param {number} share */
export const step = share => Math.max(0, Math.min(6, Math.floor(share * 7)));

/** A table. @param {(Child | Child[])[]} head @param {Child[]} rows @param {string} label @param {boolean} [fixed] whether the first row has the widths */
export const table = (head, rows, label, fixed = false) => h("table", { "aria-label": label, class: fixed ? "fixed" : undefined },
  head.length ? h("thead", {}, h("tr", {}, head.map(one => one instanceof Node ? one : h("th", {}, one)))) : null,
  h("tbody", {}, rows));

/** A row that opens something. @param {string} href @param {Child[]} cells @param {Record<string, any>} [props] */
export const row = (href, cells, props = {}) => h("tr", {
  class: "go", ...props,
  onclick: (/** @type {MouseEvent} */ event) => {
    if (!(/** @type {Element} */ (event.target).closest("a, button"))) location.hash = href;
  },
}, cells);

/** @param {string} title @param {string} text @param {...Child} more */
export const empty = (title, text, ...more) => h("div", { class: "empty" }, h("strong", {}, title), h("p", {}, text), ...more);
