// Node and pod: what bayplan explain says, drawn. In the inspector at the side, or as a view of their own.

import { get, path } from "./api.js";
import { amount, clock, counted, duration, empty, h, number, resourceName, show, table } from "./dom.js";
import { nodeLink, podLink } from "./cluster.js";
import { funnel, preemption, scores, warnings } from "./explain.js";
import { href, route } from "./state.js";
import { writeButton } from "./writing.js";

/** @param {any} error @param {() => void} again */
export const failed = (error, again) => h("div", { class: "empty", role: "alert" }, h("strong", {}, "This cannot be shown"), h("p", {}, error.message), h("p", {}, h("button", { type: "button", onclick: again }, "Try again")));

/** Shows what a promise brings. @param {HTMLElement} to @param {() => Promise<any>} ask @param {(found: any) => any} draw */
export async function fill(to, ask, draw) {
  const mine = {};
  /** @type {any} */ (to).asked = mine;
  if (!to.firstChild) show(to, h("p", { class: "spin" }, "…"));
  try {
    const found = await ask();
    if (/** @type {any} */ (to).asked === mine) show(to, draw(found));
  } catch (error) {
    if (/** @type {any} */ (to).asked === mine) show(to, failed(error, () => fill(to, ask, draw)));
  }
}

/** @param {any} pod @param {any} node @param {string} resource */
function share(pod, node, resource) {
  const of = node.resources.find((/** @type {any} */ one) => one.resource === resource)?.amounts.allocatable;
  return of ? (pod.requests[resource] ?? 0) / of : 0;
}

/** @param {any} node @param {boolean} [isView] whether it has the whole width */
export function drawNode(node, isView = false) {
  const zone = node.labels["topology.kubernetes.io/zone"];
  const ready = node.conditions.find((/** @type {any} */ one) => one.type === "Ready");
  const bad = node.conditions.filter((/** @type {any} */ one) => one.type !== "Ready" && one.status === "True");
  const used = node.resources.filter((/** @type {any} */ one) => one.amounts.allocatable);
  const main = used.find((/** @type {any} */ one) => one.resource === "cpu") ?? used[0];
  const head = [
    h("h1", {}, node.node),
    h("div", { class: "sub" }, [zone, counted(node.pods.length, "pod"), ready && (ready.status === "True" ? "Ready" : `not ready: ${ready.reason}`), ...bad.map((/** @type {any} */ one) => one.type)].filter(Boolean).join(" · ")),
    h("p", { class: "bar" }, isView ? h("a", { class: "button", href: href("cluster", "", { node: node.node }) }, "Show on the map") : h("a", { class: "button", href: href("node", node.node) }, "Open"),
      h("a", { class: "button", href: href("whatif", "", { do: `drain:${node.node}` }) }, "What if drained"), writeButton(node.unschedulable ? "uncordon" : "cordon", node.node), node.unschedulable ? h("span", { class: "pill warn" }, "cordoned") : null,
      node.taints.map((/** @type {any} */ one) => h("span", { class: "pill" }, `${one.key}${one.value ? `=${one.value}` : ""}:${one.effect}`))),
  ];
  const resources = used.map((/** @type {any} */ one) => resource(node, one));
  const rest = [
    node.pendingPods.map((/** @type {any} */ one) => h("div", { class: `verdict${one.fits ? " good" : ""}` },
      h("strong", {}, podLink(one.pods[0]), one.count > 1 ? ` and ${number(one.count - 1)} more` : "", one.fits ? " fit here" : one.count > 1 ? " do not fit here" : " does not fit here"),
      one.fits ? (one.chosenNode ? `the scheduler would choose ${one.chosenNode}` : "") : one.detail || one.reasons.join(", ") || one.error)),
    node.notEvaluatedPods ? h("p", { class: "dim" }, `${counted(node.notEvaluatedPods, "pending pod")} not evaluated: there are too many different ones`) : null,
    node.skippedPods.map((/** @type {any} */ one) => h("p", { class: "dim" }, `${counted(one.count, "pending pod")} not evaluated: ${one.reason}`)),
    h("h2", {}, "Pods on this node"),
    node.pods.length ? table([], node.pods.map((/** @type {any} */ pod) => h("tr", {}, h("td", {}, podLink(pod.pod), pod.state ? h("span", { class: "pill warn" }, pod.state) : null), h("td", { class: "n" }, main ? `${amount(main.resource, pod.requests[main.resource] ?? 0)} ${resourceName(main.resource)}` : ""))), "Pods on this node") : h("p", { class: "dim" }, "There are none."),
    node.attempts.length ? [h("h2", {}, "Latest decisions for this node"), attempts(node.attempts.slice(0, 8), true)] : null,
    h("details", {}, h("summary", {}, "Labels"), table([], Object.entries(node.labels).map(([key, value]) => h("tr", {}, h("td", {}, key), h("td", {}, /** @type {any} */ (value)))), "Labels")),
    warnings(node.source.warnings),
  ];
  return isView ? [head, h("div", { class: "columns" }, h("div", {}, resources), h("div", {}, rest))] : [head, resources, rest];
}

/** One resource of a node, with the pods that request it drawn to size. @param {any} node @param {any} one */
function resource(node, one) {
  const all = one.amounts.allocatable;
  return [h("h2", {}, resourceName(one.resource)),
    h("div", { class: "track tall", role: "img", "aria-label": `${one.requested} of ${one.allocatable}` },
      one.resource === "pods" ? h("i", { class: "s4", "width%": one.amounts.requested / all * 100 })
        : node.pods.slice().sort((/** @type {any} */ a, /** @type {any} */ b) => share(b, node, one.resource) - share(a, node, one.resource)).map((/** @type {any} */ pod, /** @type {number} */ at) => h("i", { class: `s${4 - at % 3}`, title: `${pod.pod}: ${amount(one.resource, pod.requests[one.resource] ?? 0)}`, "width%": share(pod, node, one.resource) * 100 })),
      h("i", { class: "c1", title: "nominated", "width%": one.amounts.nominated / all * 100 })),
    table([], [h("tr", {}, h("td", {}, "requested"), h("td", { class: "n" }, `${one.requested} of ${one.allocatable}`)),
      h("tr", {}, h("td", {}, "free"), h("td", { class: "n" }, one.free)),
      one.amounts.nominated ? h("tr", {}, h("td", {}, "nominated"), h("td", { class: "n" }, one.nominated)) : null,
      one.amounts.releasing ? h("tr", {}, h("td", {}, "being released"), h("td", { class: "n" }, one.releasing)) : null], resourceName(one.resource))];
}

/** @param {any[]} list @param {boolean} withPod */
export const attempts = (list, withPod) => table([], list.map(one => h("tr", {},
  h("td", { class: "dim tight" }, h("a", { href: href("decisions", String(one.seq)) }, clock(one.time))),
  h("td", {}, withPod ? [one.pod, " "] : null, one.result === "scheduled" ? ["→ ", nodeLink(one.node)] : one.message || one.result, one.victims.length ? h("span", { class: "dim" }, ` evicts ${one.victims.join(", ")}`) : null))), "Attempts");

/** Priority and requests of a pod. @param {any} pod */
export const requested = pod => [`priority ${number(pod.priority)}`, ...Object.entries(pod.requests).map(([name, value]) => `${amount(name, /** @type {any} */ (value))} ${resourceName(name)}`)];

/** @param {any} pod @param {boolean} [isView] */
export function podHead(pod, isView = false) {
  const done = pod.attempts.find((/** @type {any} */ one) => one.result === "scheduled");
  const result = pod.result;
  return [
    h("h1", {}, pod.pod),
    h("div", { class: "sub" }, [pod.workload, ...requested(pod)].filter(Boolean).join(" · ")),
    pod.state === "Assigned" ? h("div", { class: "verdict good" }, h("strong", {}, "On ", nodeLink(pod.node)), done ? `waited ${duration(done.waitedSeconds)}, ${counted(pod.attempts.filter((/** @type {any} */ one) => one.result !== "waiting").length, "attempt")}` : "")
      : pod.state === "Skipped" ? h("div", { class: "verdict plain" }, h("strong", {}, "Not evaluated"), pod.reason)
        : result?.node ? h("div", { class: "verdict plain" }, h("strong", {}, "Would go to ", nodeLink(result.node)), result.permit ? `then it waits: ${result.permit.message || result.permit.plugin}` : `${counted(result.feasible, "node")} of ${number(result.evaluatedNodes)} fit`)
          : h("div", { class: "verdict" }, h("strong", {}, "Fits on no node"), result?.error || result?.message),
    pod.identicalCount ? h("p", { class: "dim gap" }, `${counted(pod.identicalCount, "identical pod")} ${pod.identicalCount === 1 ? "is" : "are"} pending, too.`) : null,
    h("p", { class: "bar" }, isView ? null : h("a", { class: "button", href: href("pod", pod.pod) }, "Open"), h("a", { class: "button", href: href("cluster", "", { fit: pod.pod, colour: null }) }, "Show fit on the map"), pod.state === "Assigned" ? writeButton("evict", pod.pod, pod.uid) : null),
  ];
}

/** @param {any} pod */
export function drawPod(pod) {
  return [
    podHead(pod),
    pod.attempts.length ? [h("h2", {}, "Attempts"), attempts(pod.attempts, false)] : null,
    pod.result?.rejections.length ? [h("h2", {}, "Rejected by"), rejections(pod.result)] : null,
    waitsFor(pod.result),
    warnings(pod.source.warnings),
  ];
}

/** @param {any} result */
export const rejections = result => table([h("th", { class: "n w1" }, "nodes"), "plugin and reason"], result.rejections.map((/** @type {any} */ one) => h("tr", {},
  h("td", { class: "n" }, number(one.count)), h("td", {}, one.plugin ? `${one.plugin}: ` : "", one.reasons.join(", "), one.detail ? h("div", { class: "dim" }, one.detail) : null,
    one.preemptionHelps ? h("div", { class: "dim" }, `preemption would help on ${counted(one.preemptionHelps, "node")}`) : null))), "Rejections");

/** @param {any} result */
export function waitsFor(result) {
  if (!result?.requeuedBy?.length) return null;
  return [h("h2", {}, "Tried again after"), table([], result.requeuedBy.map((/** @type {any} */ one) => h("tr", {}, h("td", {}, one.plugin, h("div", { class: "dim" }, one.events.join("; "))))), "Events")];
}

/** The view of a pod. @param {HTMLElement} main */
export function openPod(main) {
  const part = h("div", {});
  main.append(part);
  const load = () => fill(part, () => get(`pods/${path(route().id)}`, { at: route().at }), pod => [
    podHead(pod, true),
    h("div", { class: "columns" },
      h("div", {}, funnel(pod.funnel, pod.result), scores(pod.table, pod.node), preemption(pod.result)),
      h("div", {}, pod.attempts.length ? [h("h2", {}, "Attempts"), attempts(pod.attempts, false)] : null, pod.result?.rejections.length ? [h("h2", {}, "Rejected by"), rejections(pod.result)] : null, waitsFor(pod.result), warnings(pod.source.warnings))),
  ]);
  load();
  return { update: load, close: () => {}, wide: true };
}

/** The view of a node. @param {HTMLElement} main */
export function openNode(main) {
  const part = h("div", {});
  main.append(part);
  const load = () => fill(part, () => get(`nodes/${path(route().id)}`, { at: route().at }), node => drawNode(node, true));
  load();
  return { update: load, close: () => {}, wide: true };
}

export const nothing = () => empty("Nothing is selected", "Choose a node on the map, or a pod or decision in a list.");
