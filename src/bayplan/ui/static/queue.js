// Queue: the pending pods in groups, with their reasons and what they wait for.

import { get } from "./api.js";
import { counted, duration, empty, h, number, show, table } from "./dom.js";
import { podLink } from "./cluster.js";
import { capacityQueues, groupLink, podGroups } from "./groups.js";
import { failed } from "./inspect.js";
import { change, href, listen, route } from "./state.js";

/** @type {[string, string, string][]} */
const STATES = [
  ["inFlight", "Being scheduled", "an attempt is in progress"],
  ["active", "Active", "waits for its turn"],
  ["backoff", "Backoff", "is tried again when its backoff ends"],
  ["unschedulable", "Unschedulable", "is tried again after an event that may help"],
  ["gated", "Gated", "is not tried before its gates are removed"],
  ["waiting", "Waiting at Permit", "has a node, and a plugin holds it"],
  ["binding", "Binding", "has a node, and is written to the API server"],
];

/** @param {HTMLElement} main */
export function open(main) {
  const bar = h("div", { class: "bar", role: "group", "aria-label": "States" }), part = h("div", {});
  main.append(h("h1", { class: "hidden" }, "Queue"), bar, part);
  let busy = false, again = false;

  const load = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      draw(await get("queue", { at: route().at }));
    } catch (error) {
      show(part, failed(error, load));
    }
    busy = false;
    if (again) {
      again = false;
      setTimeout(load, 500);
    }
  };

  /** @param {any} queue */
  const draw = queue => {
    const only = route().params.state ?? "";
    show(bar, STATES.filter(([key]) => queue.counts[key] || ["active", "backoff", "unschedulable", "gated"].includes(key)).map(([key, title]) => h("button", {
      type: "button", "aria-pressed": String(only === key), onclick: () => change({ state: only === key ? null : key }),
    }, title, h("span", { class: "dim" }, number(queue.counts[key])))),
    queue.exact ? null : h("span", { class: "push" }, route().at === null ? "derived from the status of pods" : "derived from what was seen"));
    const groups = queue.groups.filter((/** @type {any} */ one) => !only || one.state === only);
    const shared = only ? [] : [podGroups(queue), capacityQueues(queue)];
    if (!groups.length && !shared.some(Boolean)) {
      show(part, empty(only ? "No pod is in this state" : "No pod is pending", "Pods appear here while they wait for a node, with the reason."));
      return;
    }
    show(part, shared, STATES.map(([key, title, about]) => {
      const own = groups.filter((/** @type {any} */ one) => one.state === key);
      if (!own.length) return null;
      return h("section", {}, h("h2", {}, `${title} · ${number(queue.counts[key])} · ${about}`), table([h("th", { class: "w0" }, "workload"), h("th", { class: "n w1" }, "pods"), h("th", { class: "n w2 optional" }, "priority"), h("th", { class: "n w3" }, "for"), "reason, and what it waits for"],
        own.map((/** @type {any} */ one) => h("tr", {},
          h("td", {}, one.count === 1 ? podLink(one.pods[0]) : h("details", {}, h("summary", {}, `${one.namespace} · ${one.workload}`), one.pods.map((/** @type {string} */ pod) => h("div", {}, podLink(pod))), one.count > one.pods.length ? h("div", { class: "dim" }, `and ${number(one.count - one.pods.length)} more`) : null),
            one.count === 1 && !one.workload.startsWith("Pod ") ? h("div", { class: "dim" }, one.workload) : null,
            one.podGroup ? h("div", { class: "dim" }, "of group ", groupLink(one.podGroup)) : null),
          h("td", { class: "n" }, number(one.count)), h("td", { class: "n optional" }, number(one.priority)),
          h("td", { class: "n" }, one.since ? duration(Math.max(0, queue.time - one.since)) : "–", one.attempts ? h("div", { class: "dim" }, counted(one.attempts, "attempt")) : null),
          h("td", {}, one.reason || (one.forecast ? [h("span", { class: "dim" }, "evaluated now: "), one.forecast] : h("span", { class: "dim" }, about)),
            one.backoffEnds ? h("div", { class: "dim" }, `backoff ends in ${duration(Math.max(0, one.backoffEnds - queue.time))}`) : null,
            one.node ? h("div", { class: "dim" }, "on ", h("a", { href: href("node", one.node) }, one.node)) : null,
            one.waitsFor.map((/** @type {any} */ wait) => h("div", { class: "dim" }, `${wait.plugin}: ${wait.events.join("; ")}`))))), title, true));
    }));
  };

  let timer = /** @type {any} */ (null);
  const stop = listen((topic) => {
    if (topic === "status" && route().at === null && timer === null) timer = setTimeout(() => { timer = null; load(); }, 500);
  });
  load();
  return { update: load, close: () => { stop(); clearTimeout(timer); }, wide: true };
}
