// What if: changes on a copy of the cluster. Nothing is written.

import { get, post } from "./api.js";
import { fromAddress, inAddress, isLost, title } from "./changes.js";
import { choice, colouring, colours, defaultGroup, describe, groups, legend, podLink, sections } from "./cluster.js";
import { $, counted, h, icon, number, percent, resourceName, show, table } from "./dom.js";
import { failed } from "./inspect.js";
import { NodeMap, summary } from "./map.js";
import { change, listen, route, state } from "./state.js";

/** @typedef {import("./changes.js").Change} Change */

/** @type {[string, string][]} */
const FORMS = [["apply", "Manifest"], ["scale", "Scale"], ["addNodes", "Add nodes"], ["weights", "Weights"], ["config", "Configuration"]];
/** @type {[string, string][]} */
const TOOLS = [["drain", "drains"], ["cordon", "cordons"], ["removeNode", "removes"]];
const ONCE = ["weights", "config"];

/** @param {HTMLElement} main */
export function open(main) {
  const side = $("side"), bar = h("div", { class: "bar" }), second = h("div", { class: "bar" }), form = h("div", {}), content = h("div", { class: "fill" }), said = h("div", {});
  /** @type {any} */ let answer = null;
  /** @type {NodeMap | null} */ let map = null;
  let shownForm = "", shownBar = "", asked = "-", busy = false;
  main.append(h("h1", { class: "hidden" }, "What if"), bar, form, second, content, said);

  /** The changes are those of the address. */
  const changes = () => fromAddress(route().params.do ?? "");
  const tool = () => TOOLS.find(([key]) => key === route().params.click)?.[0] ?? "drain";
  const set = (/** @type {Change[]} */ list) => change({ do: inAddress(list) || null, form: null });
  const put = (/** @type {Change} */ one) => set([...changes().filter(each => !ONCE.includes(one.type) || each.type !== one.type), one]);
  const key = () => `${route().params.do ?? ""} ${route().at}`;

  /** Asks for the changes of the address; while an answer is computed, the next question waits. */
  const ask = async () => {
    if (busy || asked === key()) return;
    asked = key();
    const list = changes();
    answer = null;
    if (!list.length || list.some(isLost)) {
      drawAnswer();
      draw();
      return;
    }
    busy = true;
    show(side, h("h1", {}, "What would happen"), h("p", { class: "spin", role: "status" }, "Scheduling on a copy of the cluster…"));
    try {
      const found = await post("whatif", { changes: list, at: route().at });
      if (asked === key()) answer = found;
      drawAnswer();
    } catch (error) {
      show(side, failed(error, () => { asked = "-"; ask(); }));
    }
    busy = false;
    draw();
    ask();
  };

  const field = (/** @type {string} */ label, /** @type {any} */ input) => h("label", { class: "field" }, label, input);

  const drawForm = async () => {
    const wanted = route().params.form ?? "";
    if (wanted === shownForm) return;
    shownForm = wanted;
    show(form);
    const put_in = (/** @type {() => any} */ submit, /** @type {any[]} */ ...parts) => shownForm === wanted && show(form, h("form", { class: "verdict plain", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); submit(); } }, ...parts));
    const button = (/** @type {string} */ text) => h("button", { type: "submit", class: "main" }, text);
    if (wanted === "apply") {
      const text = h("textarea", { "aria-label": "Manifest", placeholder: "apiVersion: apps/v1\nkind: Deployment\n…" }), replicas = h("input", { type: "number", min: 1, placeholder: "as is" });
      const file = h("input", { type: "file", class: "hidden", accept: ".yaml,.yml,.json", "aria-label": "Manifest file", onchange: async () => { text.value = await file.files[0].text(); } });
      put_in(() => text.value.trim() && put({ type: "apply", manifest: text.value, replicas: replicas.value ? Number(replicas.value) : null }),
        text, h("p", { class: "bar" }, field("Replicas", replicas), file, h("button", { type: "button", onclick: () => file.click() }, "Choose a file"), button("Apply on the copy")));
      text.focus();
    } else if (wanted === "scale") {
      const found = (await get("workloads", { at: route().at })).workloads;
      if (!found.length) return put_in(() => {}, "No workload has pods here.");
      const select = h("select", { "aria-label": "Workload" }, found.map((/** @type {any} */ one) => h("option", { value: one.workload }, `${one.workload} (${one.kind}, ${one.pods})`))), replicas = h("input", { type: "number", min: 0, value: 2 * found[0].pods, "aria-label": "Replicas" });
      put_in(() => put({ type: "scale", workload: select.value, replicas: Number(replicas.value) }), h("p", { class: "bar" }, select, field("to", replicas), button("Scale on the copy")));
    } else if (wanted === "addNodes") {
      const count = h("input", { type: "number", min: 1, max: 10000, value: 3, "aria-label": "How many" }), like = h("input", { type: "text", value: route().params.node ?? "", placeholder: "a usual node" });
      put_in(() => put({ type: "addNodes", count: Number(count.value), like: like.value.trim() }),
        h("p", { class: "bar" }, field("Add", count), field("nodes like", like), h("span", {}, "a node of this cluster, or cpu=8,memory=32Gi"), button("Add on the copy")));
    } else if (wanted === "weights") {
      const weights = { ...state.info.weights, ...(changes().find(one => one.type === "weights")?.weights ?? {}) };
      put_in(() => {}, h("div", { class: "weights" }, Object.keys(weights).map(name => {
        const value = h("output", {}, weights[name]);
        return [h("label", { htmlFor: `w-${name}` }, name), h("input", { id: `w-${name}`, type: "range", min: 0, max: 20, value: weights[name], oninput: (/** @type {any} */ event) => { weights[name] = Number(event.target.value); value.textContent = event.target.value; }, onchange: () => put_weights(weights) }), value];
      }).flat()), h("p", { class: "dim" }, "0: the plugin does not score. Weights change where pods go that are scheduled after the changes."));
    } else if (wanted === "config") {
      const text = h("textarea", { "aria-label": "Configuration" });
      text.value = (await get("configuration")).yaml;
      put_in(() => put({ type: "config", config: text.value }), text, h("p", { class: "bar" }, button("Schedule with this on the copy")));
    }
  };
  /** Only those that are different. @param {Record<string, number>} weights */
  const put_weights = weights => {
    const other = Object.fromEntries(Object.entries(weights).filter(([name, weight]) => weight !== state.info.weights[name]));
    const rest = changes().filter(one => one.type !== "weights");
    change({ do: inAddress(Object.keys(other).length ? [...rest, { type: "weights", weights: other }] : rest) || null });
  };

  /** The cluster as it would be, in groups; what is different is marked. */
  const then = () => {
    const now = state.cluster, marked = new Set(), found = groups(now, route().params.group ?? defaultGroup(now));
    if (!answer) return { cluster: now, marked, found };
    const copy = (/** @type {number[][]} */ columns) => columns.map(one => one.slice());
    const nodes = { ...now.nodes, name: now.nodes.name.slice(), allocatable: copy(now.nodes.allocatable), requested: copy(now.nodes.requested) };
    const added = /** @type {number[]} */ ([]);
    for (const [name, use] of Object.entries(answer.nodes)) {
      const row = state.rows.get(name) ?? nodes.name.push(name) - 1;
      marked.add(row);
      if (row >= now.nodes.name.length) added.push(row);
      now.resources.forEach((/** @type {string} */ resource, /** @type {number} */ to) => {
        const at = answer.resources.indexOf(resource);
        nodes.allocatable[to][row] = at < 0 ? 0 : /** @type {any} */ (use)[0][at];
        nodes.requested[to][row] = at < 0 ? 0 : /** @type {any} */ (use)[1][at];
      });
    }
    for (const name of answer.removedNodes) marked.add(state.rows.get(name));
    return { cluster: { ...now, nodes }, marked, found: added.length ? [...found, { name: "New nodes", rows: added }] : found };
  };

  /** A node as it is and as it would be. @param {any} cluster @param {number} row @param {number} resource @param {boolean} isChanged */
  const beforeAfter = (cluster, row, resource, isChanged) => {
    const name = cluster.nodes.name[row], have = cluster.nodes.allocatable[resource][row] || 1;
    const now = (state.cluster.nodes.requested[resource][row] ?? 0) / have, later = cluster.nodes.requested[resource][row] / have;
    const mine = changes().filter(one => one.node === name).map(one => one.type === "removeNode" ? "removed" : `${one.type}ed`);
    const isNew = !state.rows.has(name), isGone = answer?.removedNodes.includes(name);
    const track = (/** @type {number} */ share) => h("span", { class: "bay flat", "aria-hidden": "true" }, h("i", { class: "s4", "width%": Math.min(100, share * 100) }));
    return h("button", { type: "button", class: `card${isChanged ? " mark" : ""}`, disabled: isNew, "data-node": name, "aria-label": `${tool()} ${name}; ${percent(now)} now, ${percent(later)} then`, onclick: () => put({ type: tool(), node: name }) },
      h("span", { class: "head" }, h("b", {}, name), h("span", { class: "dim" }, isNew ? "new" : mine.join(", "))), track(now), track(isGone ? 0 : later),
      h("span", { class: "foot" }, h("span", {}, isNew ? "" : `now ${percent(now)}`), h("span", {}, isGone ? "gone" : isChanged ? `then ${percent(later)}` : "unchanged")));
  };

  /** Only if something is different: a list that is open would close. */
  const drawBar = (/** @type {any} */ cluster, /** @type {string} */ colour, /** @type {any} */ by) => {
    const shown = JSON.stringify([route().params, cluster.resources]);
    if (shown === shownBar) return;
    shownBar = shown;
    const list = changes(), opened = route().params.form ?? "";
    show(bar, FORMS.map(([name, text]) => h("button", { type: "button", "aria-pressed": String(opened === name), onclick: () => change({ form: opened === name ? null : name }) }, text)),
      choice("A click", TOOLS, tool(), value => change({ click: value === "drain" ? null : value }, true)),
      list.map((one, at) => h("span", { class: "pill" }, h("span", {}, title(one)), h("button", { type: "button", "aria-label": `Undo: ${title(one)}`, onclick: () => set(list.filter((_, each) => each !== at)) }, icon("close")))),
      list.length ? h("button", { type: "button", class: "quiet", onclick: () => set([]) }, "Undo all") : null);
    show(second, choice("Colour", cluster.resources.map((/** @type {string} */ one) => [one, resourceName(one)]), colour, value => change({ colour: value })), legend(by, cluster.nodes.name.length));
  };

  const draw = () => {
    if (!state.cluster) return;
    const colour = route().params.colour || "cpu", { cluster, marked, found } = then(), by = colouring(cluster, colour, null);
    drawBar(cluster, colour, by);
    if (cluster.pods) {
      content.className = "";
      show(content, sections(found, row => beforeAfter(cluster, row, Math.max(0, cluster.resources.indexOf(colour)), marked.has(row))));
      return;
    }
    if (!map) {
      map = new NodeMap();
      show(content, map.box);
    }
    const label = (/** @type {number} */ row) => `${tool()} this node\n${describe(cluster, row)}`;
    map.show({ groups: found, ...colours(by), label, selected: -1, marked, open: row => state.rows.has(cluster.nodes.name[row]) && put({ type: tool(), node: cluster.nodes.name[row] }) });
    show(said, summary(found, row => by.share?.(row) ?? null));
  };

  /** Pods with the same reason are one line. @param {any[]} pods @returns {[string, any[]][]} */
  const byReason = pods => {
    /** @type {Map<string, any[]>} */ const lines = new Map();
    for (const one of pods) lines.set(one.reason ?? one.outcome, [...lines.get(one.reason ?? one.outcome) ?? [], one]);
    return [...lines];
  };
  const first = (/** @type {any[]} */ pods) => [podLink(pods[0].pod), pods.length > 1 ? ` and ${number(pods.length - 1)} more` : ""];

  /** The first sentence of an answer. */
  const verdict = () => {
    const lost = answer.notScheduled - answer.stayPending, stay = answer.stayPending;
    const waiting = stay ? `${counted(stay, "pod")} that ${stay === 1 ? "is" : "are"} pending now would stay pending` : "";
    if (lost) return h("div", { class: "verdict", role: "status" }, h("strong", {}, `${counted(lost, "pod")} would have no node`), waiting);
    return h("div", { class: "verdict good", role: "status" }, h("strong", {}, stay ? "Every other pod would have a node" : "Every pod would have a node"), waiting);
  };

  const drawAnswer = () => {
    const head = [h("h1", {}, "What would happen"), h("p", { class: "sub" }, "on a copy of the cluster; nothing is written")];
    if (!answer) {
      show(side, head, changes().some(isLost)
        ? h("div", { class: "verdict" }, h("strong", {}, "A text of this link is not here"), "A manifest or configuration was too long for the address, and stays in the tab in which it was entered. Undo that change, or enter the text again.")
        : h("p", { class: "dim" }, "Click a node to drain it, or add a manifest, replicas, nodes or weights above."));
      return;
    }
    const bad = answer.pods.filter((/** @type {any} */ one) => one.outcome !== "Scheduled");
    const moved = answer.pods.filter((/** @type {any} */ one) => one.outcome === "Scheduled");
    const new_nodes = Object.keys(answer.nodes).filter(name => !state.rows.has(name)).length;
    show(side, head, verdict(),
      answer.blocked.map((/** @type {any} */ one) => h("div", { class: "verdict bad" }, h("strong", {}, "Blocked by a budget"), one.message)),
      table([], [["moved", answer.moved], ["scheduled", answer.scheduled], ["not scheduled", answer.notScheduled], ["evicted for priority", answer.evictedCount], ["new nodes", new_nodes], ["removed nodes", answer.removedNodes.length]].map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", { class: "n" }, number(value)))), "Summary"),
      h("h2", {}, "Requested share"), table(["", h("th", { class: "n" }, "now"), h("th", { class: "n" }, "then")], Object.entries(answer.totals).map(([name, one]) => h("tr", {}, h("td", {}, resourceName(name)), h("td", { class: "n" }, percent(/** @type {any} */ (one).now)), h("td", { class: "n" }, percent(/** @type {any} */ (one).then)))), "Requested share"),
      bad.length ? [h("h2", {}, "Without a node"), table([], byReason(bad).map(([reason, pods]) => h("tr", {}, h("td", {}, first(pods), h("div", { class: "dim" }, reason)))), "Without a node"), answer.podCount > answer.pods.length ? h("p", { class: "dim" }, `and ${counted(answer.podCount - answer.pods.length, "pod")} that are not listed`) : null] : null,
      answer.evicted.length ? [h("h2", {}, "Evicted"), table([], answer.evicted.slice(0, 50).map((/** @type {string} */ one) => h("tr", {}, h("td", {}, podLink(one)))), "Evicted")] : null,
      moved.length ? [h("h2", {}, "Scheduled"), table(["pod", "from", "to"], moved.slice(0, 100).map((/** @type {any} */ one) => h("tr", {}, h("td", {}, one.pod), h("td", { class: "dim" }, one.wasOn ?? "new"), h("td", {}, one.node))), "Scheduled"), moved.length > 100 ? h("p", { class: "dim" }, `and ${number(moved.length - 100)} more`) : null] : null,
      answer.warnings.length ? h("details", {}, h("summary", {}, counted(answer.warnings.length, "remark")), answer.warnings.map((/** @type {any} */ one) => h("p", { class: "dim" }, one.message))) : null,
      answer.leftOut.map((/** @type {string} */ one) => h("p", { class: "dim" }, `left out: ${one}`)));
  };

  const stop = listen(topic => { if (topic === "cluster" || topic === "rows") draw(); });
  const update = () => { draw(); drawForm(); ask(); };
  update();
  return { update, close: () => { stop(); map?.close(); }, own_side: true };
}
