// The parts of a decision: the funnel of filters, the scores by plugin, the candidates of preemption.

import { counted, h, number, table } from "./dom.js";
import { nodeLink, podLink } from "./cluster.js";

/** @param {any[]} steps @param {any} result */
export function funnel(steps, result) {
  if (!result || !result.evaluatedNodes) return null;
  const all = result.evaluatedNodes;
  const line = (/** @type {string} */ name, /** @type {number} */ left, /** @type {any} */ why) => h("tr", {}, h("td", { class: "name" }, name),
    h("td", {}, h("div", { class: "track tall", "aria-hidden": "true" }, h("i", { class: "s4", "width%": left ? Math.max(0.6, left / all * 100) : 0 }))),
    h("td", { class: "n" }, number(left)), h("td", { class: "dim" }, why));
  return [h("h2", {}, "Filter"), table([h("th", { class: "w4 name" }, h("span", { class: "hidden" }, "filter")), h("th", {}, h("span", { class: "hidden" }, "share")), h("th", { class: "n w1" }, "left"), h("th", { class: "w0" }, "rejected")], [
    line("all nodes", all, ""),
    ...steps.map(one => line(one.plugin || "not evaluated", one.left, one.reasons.map((/** @type {any} */ reason) => h("div", {}, `${number(reason.nodes)} ${reason.reason}`)))),
  ], "Nodes that are left after each filter", true)];
}

/** @param {any} found @param {string} [current] */
export function scores(found, current) {
  if (!found) return null;
  const plugins = found.plugins, most = Math.max(1, ...found.nodes.map((/** @type {any} */ one) => one.total));
  const tones = ["s5", "s3", "k5", "s2", "k3", "s4", "k4", "s6", "k2", "s1"];
  return [
    h("h2", {}, `Score, best ${counted(found.nodes.length, "node")} of ${number(found.feasible)}${found.ties > 1 ? ` · ${number(found.ties)} share the highest total` : ""}`),
    table([h("th", { class: "w4" }, "node"), h("th", {}, "weighted by plugin"), h("th", { class: "n w1" }, "total")], found.nodes.map((/** @type {any} */ one) => h("tr", { class: one.node === found.chosen ? "chosen" : undefined },
      h("td", {}, nodeLink(one.node), one.node === current ? h("span", { class: "pill good" }, "here") : null),
      h("td", {}, h("div", { class: "track tall" }, plugins.map((/** @type {any} */ plugin, /** @type {number} */ at) => h("i", {
        class: tones[at % tones.length], "width%": plugin.weight * one.normalized[at] / most * 96,
        title: `${plugin.name}: ${one.normalized[at]} × ${plugin.weight} = ${one.normalized[at] * plugin.weight} (raw ${one.raw[at]})`,
      })))),
      h("td", { class: "n" }, number(one.total)))), "Scores", true),
    h("div", { class: "legend" }, plugins.map((/** @type {any} */ plugin, /** @type {number} */ at) => h("span", { class: "step" }, h("i", { class: tones[at % tones.length], "aria-hidden": "true" }), `${plugin.name} × ${plugin.weight}`))),
    h("details", {}, h("summary", {}, "Raw, normalized and weighted"), h("table", { "aria-label": "Scores by plugin" },
      h("thead", {}, h("tr", {}, h("th", {}, "plugin"), h("th", { class: "n" }, "weight"), found.nodes.slice(0, 4).map((/** @type {any} */ one) => h("th", { class: "n" }, one.node)))),
      h("tbody", {}, plugins.map((/** @type {any} */ plugin, /** @type {number} */ at) => h("tr", {}, h("td", {}, plugin.name), h("td", { class: "n" }, plugin.weight),
        found.nodes.slice(0, 4).map((/** @type {any} */ one) => h("td", { class: "n" }, `${number(one.raw[at])} → ${one.normalized[at]} → ${one.normalized[at] * plugin.weight}`))))))),
  ];
}

/** @param {any} result */
export function preemption(result) {
  const found = result?.preemption;
  if (!found) return null;
  return [h("h2", {}, "Preemption"),
    h("p", { class: "dim" }, found.candidateCount ? `${counted(found.candidateCount, "node")} would be freed by evictions${found.node ? `; ${found.node} would be chosen` : ""}` : found.message || "no eviction would help"),
    found.candidates.length ? table([h("th", { class: "w4" }, "node"), "victims", h("th", { class: "n w3" }, "budgets violated")], found.candidates.map((/** @type {any} */ one) => h("tr", { class: one.node === found.node ? "chosen" : undefined },
      h("td", {}, nodeLink(one.node)), h("td", {}, one.victims.map((/** @type {string} */ pod, /** @type {number} */ at) => [at ? ", " : "", podLink(pod)]).flat()), h("td", { class: "n" }, number(one.pdbViolations)))), "Candidates", true) : null];
}

/** What an answer rests on. @param {any[]} list */
export const warnings = list => list.length ? h("details", {}, h("summary", {}, `${counted(list.length, "remark")} on this answer`), h("ul", {}, list.map(one => h("li", { class: "dim" }, one.message)))) : null;
