// What if: changes on a copy of the cluster. Nothing is written.

import { get, post } from "./api.js";
import { $, counted, h, icon, number, percent, resourceName, show, table } from "./dom.js";
import { choice, colouring, defaultGroup, describe, groups, legend, podLink, tone } from "./cluster.js";
import { failed } from "./inspect.js";
import { NodeMap, summary } from "./map.js";
import { change, listen, route, state } from "./state.js";

/** @typedef {Record<string, any>} Change */

/** The changes of the address, as in do=drain:n01,cordon:n02. @returns {Change[]} */
function given() {
  return (route().params.do ?? "").split(",").filter(Boolean).map(text => {
    const [type, ...rest] = text.split(":"), value = rest.join(":");
    if (type === "scale") return { type, workload: value.split("=")[0], replicas: Number(value.split("=")[1]) };
    if (type === "addNodes") return { type, count: Number(value.split("=")[0]), like: value.split("=")[1] ?? "" };
    return { type, node: value };
  });
}

/** @param {Change[]} list */
const written = list => list.filter(one => one.type !== "apply" && one.type !== "weights" && one.type !== "config").map(one =>
  one.type === "scale" ? `scale:${one.workload}=${one.replicas}` : one.type === "addNodes" ? `addNodes:${one.count}${one.like ? `=${one.like}` : ""}` : `${one.type}:${one.node}`).join(",");

/** @param {Change} one */
const title = one => ({ apply: () => `apply a manifest${one.replicas ? ` × ${one.replicas}` : ""}`, scale: () => `scale ${one.workload} to ${one.replicas}`, cordon: () => `cordon ${one.node}`, drain: () => `drain ${one.node}`, removeNode: () => `remove ${one.node}`, addNodes: () => `add ${one.count} nodes${one.like ? ` like ${one.like}` : ""}`, weights: () => "other weights", config: () => "another configuration" })[/** @type {"apply"} */ (one.type)]?.() ?? one.type;

/** @param {HTMLElement} main */
export function open(main) {
  const side = $("side"), bar = h("div", { class: "bar" }), second = h("div", { class: "bar" }), form = h("div", {}), content = h("div", { class: "fill" }), said = h("div", {});
  /** @type {Change[]} */ let changes = given();
  /** @type {any} */ let answer = null;
  /** @type {NodeMap | null} */ let map = null;
  let tool = "drain", form_open = "", shown = "";
  main.append(h("h1", { class: "hidden" }, "What if"), bar, form, second, content, said);

  const put = (/** @type {Change} */ one) => {
    if (["weights", "config"].includes(one.type)) changes = changes.filter(each => each.type !== one.type);
    changes.push(one);
    form_open = "";
    ask();
  };

  const ask = async () => {
    const text = written(changes);
    if ((route().params.do ?? "") !== text) {
      shown = text;
      change({ do: text || null });
    }
    draw();
    if (!changes.length) {
      answer = null;
      drawAnswer();
      draw();
      return;
    }
    show(side, h("h1", {}, "What would happen"), h("p", { class: "spin", role: "status" }, "Scheduling on a copy of the cluster…"));
    try {
      answer = await post("whatif", { changes, at: route().at });
      drawAnswer();
    } catch (error) {
      answer = null;
      show(side, failed(error, ask));
    }
    draw();
  };

  const field = (/** @type {string} */ label, /** @type {any} */ input) => h("label", { class: "field" }, label, input);

  const drawForm = async () => {
    show(form);
    const put_in = (/** @type {any[]} */ ...parts) => show(form, h("form", { class: "verdict plain", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, ...parts));
    if (form_open === "apply") {
      const text = h("textarea", { "aria-label": "Manifest", placeholder: "apiVersion: apps/v1\nkind: Deployment\n…" }), replicas = h("input", { type: "number", min: 1, placeholder: "as is" });
      const file = h("input", { type: "file", class: "hidden", accept: ".yaml,.yml,.json", "aria-label": "Manifest file", onchange: async () => { text.value = await file.files[0].text(); } });
      put_in(text, h("p", { class: "bar" }, field("Replicas", replicas), file, h("button", { type: "button", onclick: () => file.click() }, "Choose a file"), h("button", { type: "submit", class: "main", onclick: () => text.value.trim() && put({ type: "apply", manifest: text.value, replicas: replicas.value ? Number(replicas.value) : null }) }, "Apply on the copy")));
      text.focus();
    } else if (form_open === "scale") {
      const found = (await get("workloads", { at: route().at })).workloads;
      if (!found.length) return put_in("No workload has pods here.");
      const select = h("select", { "aria-label": "Workload" }, found.map((/** @type {any} */ one) => h("option", { value: one.workload }, `${one.workload} (${one.kind}, ${one.pods})`))), replicas = h("input", { type: "number", min: 0, value: 2 * found[0].pods, "aria-label": "Replicas" });
      put_in(h("p", { class: "bar" }, select, field("to", replicas), h("button", { type: "submit", class: "main", onclick: () => put({ type: "scale", workload: select.value, replicas: Number(replicas.value) }) }, "Scale on the copy")));
    } else if (form_open === "addNodes") {
      const count = h("input", { type: "number", min: 1, max: 10000, value: 3, "aria-label": "How many" }), like = h("input", { type: "text", value: route().params.node ?? "", placeholder: "a usual node" });
      put_in(h("p", { class: "bar" }, field("Add", count), field("nodes like", like), h("span", {}, "a node of this cluster, or cpu=8,memory=32Gi"), h("button", { type: "submit", class: "main", onclick: () => put({ type: "addNodes", count: Number(count.value), like: like.value.trim().replaceAll(",", ";") ? like.value.trim() : "" }) }, "Add on the copy")));
    } else if (form_open === "weights") {
      const weights = { ...state.info.weights, ...(changes.find(one => one.type === "weights")?.weights ?? {}) };
      put_in(h("div", { class: "weights" }, Object.keys(weights).map(name => {
        const value = h("output", {}, weights[name]);
        return [h("label", { htmlFor: `w-${name}` }, name), h("input", { id: `w-${name}`, type: "range", min: 0, max: 20, value: weights[name], oninput: (/** @type {any} */ event) => { weights[name] = Number(event.target.value); value.textContent = event.target.value; }, onchange: () => put_weights(weights) }), value];
      }).flat()), h("p", { class: "dim" }, "0: the plugin does not score. Weights change where pods go that are scheduled after the changes."));
    } else if (form_open === "config") {
      const text = h("textarea", { "aria-label": "Configuration" });
      text.value = (await get("configuration")).yaml;
      put_in(text, h("p", { class: "bar" }, h("button", { type: "submit", class: "main", onclick: () => put({ type: "config", config: text.value }) }, "Schedule with this on the copy")));
    }
  };
  const put_weights = (/** @type {Record<string, number>} */ weights) => {
    changes = [...changes.filter(one => one.type !== "weights"), { type: "weights", weights: { ...weights } }];
    ask();
  };

  /** The cluster as it would be. */
  const then = () => {
    const now = state.cluster;
    if (!answer) return { cluster: now, marked: new Set() };
    const nodes = { ...now.nodes, allocatable: now.nodes.allocatable.map((/** @type {number[]} */ one) => one.slice()), requested: now.nodes.requested.map((/** @type {number[]} */ one) => one.slice()) };
    const marked = new Set();
    for (const [name, use] of Object.entries(answer.nodes)) {
      const row = state.rows.get(name);
      if (row === undefined) continue;
      marked.add(row);
      answer.resources.forEach((/** @type {string} */ resource, /** @type {number} */ at) => {
        const to = now.resources.indexOf(resource);
        if (to >= 0) nodes.requested[to][row] = /** @type {any} */ (use)[1][at];
      });
    }
    for (const name of answer.removedNodes) marked.add(state.rows.get(name));
    return { cluster: { ...now, nodes }, marked };
  };

  /** A node as it is and as it would be. @param {any} cluster @param {number} row @param {number} resource @param {boolean} isChanged */
  const beforeAfter = (cluster, row, resource, isChanged) => {
    const name = cluster.nodes.name[row], have = cluster.nodes.allocatable[resource][row] || 1;
    const now = state.cluster.nodes.requested[resource][row] / have, later = cluster.nodes.requested[resource][row] / have;
    const mine = changes.filter(one => one.node === name).map(one => one.type === "removeNode" ? "removed" : `${one.type}ed`);
    const track = (/** @type {number} */ share) => h("span", { class: "bay flat", "aria-hidden": "true" }, h("i", { class: "s4", "width%": Math.min(100, share * 100) }));
    return h("button", { type: "button", class: `card${isChanged ? " mark" : ""}`, "data-node": name, "aria-label": `${tool} ${name}; ${percent(now)} now, ${percent(later)} then`, onclick: () => put({ type: tool, node: name }) },
      h("span", { class: "head" }, h("b", {}, name), h("span", { class: "dim" }, mine.join(", "))), track(now), track(later),
      h("span", { class: "foot" }, h("span", {}, `now ${percent(now)}`), h("span", {}, isChanged ? `then ${percent(later)}` : "unchanged")));
  };

  const draw = () => {
    if (!state.cluster) return;
    const params = route().params, colour = params.colour || "cpu";
    const pressed = (/** @type {string} */ key) => String(form_open === key);
    const opens = (/** @type {string} */ key, /** @type {string} */ text) => h("button", { type: "button", "aria-pressed": pressed(key), onclick: () => { form_open = form_open === key ? "" : key; draw(); drawForm(); } }, text);
    const { cluster, marked } = then(), by = colouring(cluster, colour, null);
    show(bar, opens("apply", "Manifest"), opens("scale", "Scale"), opens("addNodes", "Add nodes"), opens("weights", "Weights"), opens("config", "Configuration"),
      choice("A click", [["drain", "drains"], ["cordon", "cordons"], ["removeNode", "removes"]], tool, value => { tool = value; }),
      changes.map((one, at) => h("span", { class: "pill" }, title(one), h("button", { type: "button", "aria-label": `Undo: ${title(one)}`, onclick: () => { changes.splice(at, 1); ask(); } }, icon("close")))),
      changes.length ? h("button", { type: "button", class: "quiet", onclick: () => { changes = []; ask(); } }, "Undo all") : null);
    show(second, choice("Colour", cluster.resources.map((/** @type {string} */ one) => [one, resourceName(one)]), colour, value => change({ colour: value })), legend(by, cluster.nodes.name.length));
    const group = params.group ?? defaultGroup(cluster), label = (/** @type {number} */ row) => `${tool} this node\n${describe(cluster, row)}`;
    if (cluster.pods) {
      content.className = "";
      show(content, groups(cluster, group).map(one => h("section", { class: "group" }, h("h2", {}, h("span", {}, one.name), h("span", {}, counted(one.rows.length, "node"))), h("div", { class: "cards" }, one.rows.map(row => beforeAfter(cluster, row, Math.max(0, cluster.resources.indexOf(colour)), marked.has(row)))))));
      return;
    }
    if (!map) {
      map = new NodeMap();
      show(content, map.box);
    }
    map.show({ groups: groups(cluster, group), colour: row => tone(by, row), label, selected: -1, marked, open: row => put({ type: tool, node: cluster.nodes.name[row] }) });
    show(said, summary(groups(cluster, group), row => by.share?.(row) ?? null));
  };

  const drawAnswer = () => {
    if (!answer) {
      show(side, h("h1", {}, "What would happen"), h("p", { class: "sub" }, "on a copy of the cluster; nothing is written"), h("p", { class: "dim" }, "Click a node to drain it, or add a manifest, replicas, nodes or weights above."));
      return;
    }
    const bad = answer.pods.filter((/** @type {any} */ one) => one.outcome !== "Scheduled");
    const moved = answer.pods.filter((/** @type {any} */ one) => one.outcome === "Scheduled");
    const new_nodes = Object.keys(answer.nodes).filter(name => !state.rows.has(name)).length;
    show(side, h("h1", {}, "What would happen"), h("p", { class: "sub" }, "on a copy of the cluster; nothing is written"),
      h("div", { class: `verdict${answer.fits ? " good" : ""}`, role: "status" }, h("strong", {}, answer.fits ? "Every pod would have a node" : `${counted(answer.notScheduled, "pod")} would have no node`), bad.slice(0, 3).map((/** @type {any} */ one) => h("div", {}, podLink(one.pod), `: ${one.reason ?? one.outcome}`))),
      answer.blocked.map((/** @type {any} */ one) => h("div", { class: "verdict bad" }, h("strong", {}, "Blocked by a budget"), one.message)),
      table([], [["moved", answer.moved], ["scheduled", answer.scheduled], ["not scheduled", answer.notScheduled], ["evicted for priority", answer.evictedCount], ["new nodes", new_nodes], ["removed nodes", answer.removedNodes.length]].map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", { class: "n" }, number(value)))), "Summary"),
      h("h2", {}, "Requested share"), table(["", h("th", { class: "n" }, "now"), h("th", { class: "n" }, "then")], Object.entries(answer.totals).map(([name, one]) => h("tr", {}, h("td", {}, resourceName(name)), h("td", { class: "n" }, percent(/** @type {any} */ (one).now)), h("td", { class: "n" }, percent(/** @type {any} */ (one).then)))), "Requested share"),
      bad.length ? [h("h2", {}, "Without a node"), table([], bad.slice(0, 50).map((/** @type {any} */ one) => h("tr", {}, h("td", {}, podLink(one.pod), h("div", { class: "dim" }, one.reason ?? one.outcome)))), "Without a node")] : null,
      answer.evicted.length ? [h("h2", {}, "Evicted"), table([], answer.evicted.slice(0, 50).map((/** @type {string} */ one) => h("tr", {}, h("td", {}, podLink(one)))), "Evicted")] : null,
      moved.length ? [h("h2", {}, "Scheduled"), table(["pod", "from", "to"], moved.slice(0, 100).map((/** @type {any} */ one) => h("tr", {}, h("td", {}, one.pod), h("td", { class: "dim" }, one.wasOn ?? "new"), h("td", {}, one.node))), "Scheduled"), moved.length > 100 ? h("p", { class: "dim" }, `and ${number(moved.length - 100)} more`) : null] : null,
      answer.warnings.length ? h("details", {}, h("summary", {}, counted(answer.warnings.length, "remark")), answer.warnings.map((/** @type {any} */ one) => h("p", { class: "dim" }, one.message))) : null,
      answer.leftOut.map((/** @type {string} */ one) => h("p", { class: "dim" }, `left out: ${one}`)));
  };

  const stop = listen(topic => { if (topic === "cluster" || topic === "rows") draw(); });
  draw();
  drawAnswer();
  if (changes.length) ask();
  return {
    update: () => {
      if ((route().params.do ?? "") !== shown && written(changes) !== (route().params.do ?? "")) {
        changes = [...given(), ...changes.filter(one => ["apply", "weights", "config"].includes(one.type))];
        ask();
      } else draw();
    },
    close: () => { stop(); map?.close(); }, own_side: true,
  };
}
