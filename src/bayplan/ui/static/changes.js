// The changes of a what-if question, and how they stand in the address: do=drain:n01;scale:shop/web=5;weights:NodeResourcesFit=3

import { stow, unstow } from "./state.js";

/** @typedef {Record<string, any>} Change */

/** @param {Change} one */
function value(one) {
  switch (one.type) {
    case "apply": return `${one.replicas ?? ""}=${encodeURIComponent(stow(one.manifest))}`;
    case "config": return encodeURIComponent(stow(one.config));
    case "scale": return `${one.workload}=${one.replicas}`;
    case "addNodes": return `${one.count}=${encodeURIComponent(one.like)}`;
    case "weights": return Object.entries(one.weights).map(([name, weight]) => `${name}=${weight}`).join(",");
    default: return one.node;
  }
}

/** @param {Change[]} list */
export const inAddress = list => list.map(one => `${one.type}:${value(one)}`).join(";");

/**
 * The changes of an address. A text that was too long for it is null where it is not known: in another tab or browser.
 * @param {string} address @returns {Change[]}
 */
export function fromAddress(address) {
  return address.split(";").filter(Boolean).map(part => {
    const at = part.indexOf(":"), type = part.slice(0, at), rest = part.slice(at + 1);
    const equals = rest.indexOf("="), first = rest.slice(0, equals), second = rest.slice(equals + 1);
    switch (type) {
      case "apply": return { type, manifest: unstow(decodeURIComponent(second)), replicas: first ? Number(first) : null };
      case "config": return { type, config: unstow(decodeURIComponent(rest)) };
      case "scale": return { type, workload: first, replicas: Number(second) };
      case "addNodes": return { type, count: Number(first), like: decodeURIComponent(second) };
      case "weights": return { type, weights: Object.fromEntries(rest.split(",").map(one => one.split("=")).map(([name, weight]) => [name, Number(weight)])) };
      default: return { type, node: rest };
    }
  });
}

/** Whether its text is missing. @param {Change} one */
export const isLost = one => one.manifest === null || one.config === null;

/** @param {Change} one */
export function title(one) {
  switch (one.type) {
    case "apply": return `apply a manifest${one.replicas ? ` × ${one.replicas}` : ""}`;
    case "config": return "another configuration";
    case "scale": return `scale ${one.workload} to ${one.replicas}`;
    case "addNodes": return `add ${one.count} nodes${one.like ? ` like ${one.like}` : ""}`;
    case "weights": return Object.entries(one.weights).map(([name, weight]) => `${name} × ${weight}`).join(", ");
    case "removeNode": return `remove ${one.node}`;
    default: return `${one.type} ${one.node}`;
  }
}
