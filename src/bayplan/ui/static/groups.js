// Pod groups and capacity queues: their tables in the queue view, and the view of a group.

import { get, path } from "./api.js";
import { nodeLink, podLink } from "./cluster.js";
import { counted, h, number, percent, table } from "./dom.js";
import { fill } from "./inspect.js";
import { href, route } from "./state.js";

/** @param {string} group */
export const groupLink = group => h("a", { href: href("group", group) }, group);

/** The groups of a queue. @param {any} queue */
export function podGroups(queue) {
  if (!queue.podGroups.length) return null;
  const least = (/** @type {any} */ one) => one.minGroupCount ? counted(one.minGroupCount, "group") : one.minCount ? number(one.minCount) : "–";
  return h("section", {}, h("h2", {}, `Pod groups · ${number(queue.podGroupCount)} · members are scheduled together`),
    table([h("th", { class: "w0" }, "group"), h("th", { class: "n w3" }, "at least"), h("th", { class: "n w3" }, "with a node"), h("th", { class: "n w3" }, "pending"), "members"],
      queue.podGroups.map((/** @type {any} */ one) => h("tr", {}, h("td", { class: `d${one.depth}` }, groupLink(one.group), one.exists ? null : h("div", { class: "dim" }, "its PodGroup is missing")),
        h("td", { class: "n" }, least(one)), h("td", { class: "n" }, number(one.assigned)), h("td", { class: "n" }, number(one.pending)),
        h("td", {}, progress(one)))), "Pod groups", true));
}

/** @param {any} one */
function progress(one) {
  const all = Math.max(one.assigned + one.pending, one.minCount ?? 0) || 1;
  return h("div", { class: "track tall", role: "img", "aria-label": `${one.assigned} of ${all} members have a node` },
    h("i", { class: "s4", "width%": one.assigned / all * 100 }), h("i", { class: "s2", "width%": one.pending / all * 100 }));
}

/** The tree of capacity queues. @param {any} queue */
export function capacityQueues(queue) {
  if (!queue.capacityQueues.length) return null;
  return h("section", {}, h("h2", {}, `Capacity queues · ${number(queue.capacityQueues.length)} · what each uses, is guaranteed and may use at most`),
    table([h("th", { class: "w0" }, "queue"), h("th", { class: "n w2" }, "share"), h("th", { class: "n w2" }, "pending"), h("th", { class: "n w3 optional" }, "applications"), "used of maximum"],
      queue.capacityQueues.map((/** @type {any} */ one) => h("tr", { "data-queue": one.queue }, h("td", { class: `d${Math.min(one.depth, 5)}` }, one.name, one.state === "Active" ? null : h("span", { class: "pill warn" }, one.state)),
        h("td", { class: "n" }, percent(one.share)), h("td", { class: "n" }, number(one.pendingPods)),
        h("td", { class: "n optional" }, one.maxApplications ? `${one.runningApplications} of ${one.maxApplications}` : number(one.runningApplications)),
        h("td", {}, one.resources.length ? one.resources.map(quota) : h("span", { class: "dim" }, "nothing, without limits")))), "Capacity queues", true));
}

/** @param {any} one */
function quota(one) {
  const of = one.max !== null ? `${one.used} of ${one.max}` : `${one.used}, no maximum`;
  const text = one.guaranteed === null ? of : `${of}, ${one.guaranteed} guaranteed`;
  return h("div", { class: "quota" }, h("span", { class: "dim" }, one.resource),
    one.share === null ? null : h("div", { class: "track", role: "img", "aria-label": `${one.resource}: ${text}` }, h("i", { class: one.share > 1 ? "c3" : "s4", "width%": Math.min(100, one.share * 100) }), one.max !== null && one.guaranteedShare ? h("b", { class: "tick", title: `${one.guaranteed} guaranteed`, "left%": Math.min(100, one.guaranteedShare * 100) }) : null), h("span", { class: "dim" }, text));
}

/** The view of a group. @param {HTMLElement} main */
export function openGroup(main) {
  const part = h("div", {});
  main.append(part);
  const load = () => fill(part, () => get(`groups/${path(route().id)}`, { at: route().at }), group => [
    h("h1", {}, group.group),
    h("div", { class: "sub" }, `${group.podGroups ? "" : "Pod group · "}${group.policy} · ${counted(group.scheduledCount, "member")} with a node, ${number(group.waitingCount)} waiting`),
    h("div", { class: `verdict${group.schedulable ? " good" : ""}` }, h("strong", {}, group.schedulable ? "Schedulable" : "Not scheduled"), group.verdict,
      group.remedies.length ? h("ul", {}, group.remedies.map((/** @type {string} */ one) => h("li", {}, one))) : null),
    group.podGroups ? h("section", {}, h("h2", {}, "Its groups"),
      table([h("th", { class: "w4" }, "group"), h("th", { class: "w4" }, "policy"), h("th", { class: "n w3" }, "with a node"), h("th", { class: "n w3" }, "waiting"), "result"],
        group.podGroups.map((/** @type {any} */ one) => h("tr", {}, h("td", {}, one.name), h("td", {}, one.policy), h("td", { class: "n" }, number(one.scheduled)), h("td", { class: "n" }, number(one.waiting)), h("td", {}, one.result || "–"))), "Groups of the composite group", true)) : null,
    h("div", { class: "columns" },
      h("div", {}, h("h2", {}, "Waiting"), group.waiting.length ? table([h("th", { class: "w4" }, "pod"), "node, or why it has none"], group.waiting.map((/** @type {any} */ one) => h("tr", {}, h("td", {}, podLink(one.pod)), h("td", {}, one.node ? ["would go to ", nodeLink(one.node)] : one.reason || h("span", { class: "dim" }, "waits for the group")))), "Waiting members", true) : h("p", { class: "dim" }, "No member waits.")),
      h("div", {}, h("h2", {}, "With a node"), group.scheduled.length ? table([], group.scheduled.map((/** @type {any} */ one) => h("tr", {}, h("td", {}, podLink(one.pod)), h("td", {}, nodeLink(one.node)))), "Members with a node") : h("p", { class: "dim" }, "No member has a node."),
        group.victims.length ? [h("h2", {}, "Would be evicted for it"), table([], group.victims.map((/** @type {string} */ one) => h("tr", {}, h("td", {}, podLink(one)))), "Victims")] : null)),
  ]);
  load();
  return { update: load, close: () => {}, wide: true };
}
