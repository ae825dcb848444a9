// Cluster: every node, grouped by a label, coloured by what matters now.

import { get } from "./api.js";
import { amount, counted, empty, h, icon, number, percent, resourceName, show, step } from "./dom.js";
import { NodeMap, summary } from "./map.js";
import { change, href, listen, route, state } from "./state.js";

const ZONE = "topology.kubernetes.io/zone";
const READY = 1, CORDONED = 2, PRESSURE = 4;
const NAMED_SHARE = 0.3; // of a card: pods that are larger have their name in it
const SCALE = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];

/**
 * How nodes are coloured: a share on the sequential scale, or a category with a name. `tones` are classes of style.css.
 * @typedef {{title: string, tones: string[], share?: (row: number) => number, kind?: (row: number) => number, kinds?: string[], low?: string, high?: string}} Colouring
 */

/** @param {any} cluster @param {string} name @param {any} fit @returns {Colouring} */
export function colouring(cluster, name, fit) {
  const nodes = cluster.nodes;
  if (name === "state") {
    return {
      title: "State", kinds: ["ready", "tainted", "cordoned", "under pressure", "not ready"], tones: ["s2", "k2", "k5", "c1", "bad0"],
      kind: row => {
        const bits = nodes.state[row];
        return !(bits & READY) ? 4 : bits & PRESSURE ? 3 : bits & CORDONED ? 2 : cluster.taints.index[row] >= 0 ? 1 : 0;
      },
    };
  }
  if (name === "taint") {
    const kinds = ["none", ...cluster.taints.values.slice(0, 5), ...(cluster.taints.values.length > 5 ? ["others"] : [])];
    return { title: "Taint", kinds, tones: ["s1", "s4", "c2", "c1", "c4", "c6", "k6"], kind: row => Math.min(cluster.taints.index[row] + 1, kinds.length - 1) };
  }
  if (name === "stranded") {
    return { title: "Stranded", tones: SCALE, share: row => nodes.stranded[row], low: "room for all", high: "for none" };
  }
  if (name === "fit" && fit) {
    const plugins = Object.keys(fit.rejected);
    const of = new Map();
    plugins.forEach((plugin, at) => fit.rejected[plugin].forEach((/** @type {string} */ node) => of.set(node, Math.min(at + 1, 6))));
    const kinds = [`fits ${fit.pod}`, ...plugins.slice(0, 5), ...(plugins.length > 5 ? ["others"] : [])];
    return { title: "Fit", kinds, tones: ["s5", "k1", "k2", "k3", "k4", "k5", "k6"], kind: row => of.get(nodes.name[row]) ?? 0 };
  }
  const at = Math.max(0, cluster.resources.indexOf(name));
  const have = nodes.allocatable[at] ?? [], used = nodes.requested[at] ?? [];
  return { title: `${resourceName(cluster.resources[at] ?? "cpu")} requested`, tones: SCALE, share: row => have[row] ? used[row] / have[row] : 0, low: "0 %", high: "100 %" };
}

/** The colours of a map. @param {Colouring} by */
export function colours(by) {
  const { share, kind } = by;
  return { tones: by.tones.map(one => `--${one.replace("bad0", "bad")}`), tone: share ? (/** @type {number} */ row) => step(share(row)) : (/** @type {number} */ row) => kind?.(row) ?? 0 };
}

/** @param {Colouring} by @param {number} count */
export function legend(by, count) {
  if (by.share) {
    return h("div", { class: "legend push" }, by.low, h("span", { class: "scale", "aria-hidden": "true" }, by.tones.map(one => h("i", { class: one }))), by.high);
  }
  const counts = new Array(by.kinds?.length ?? 0).fill(0);
  for (let row = 0; row < count; row++) counts[by.kind?.(row) ?? 0]++;
  return h("div", { class: "legend push" }, by.kinds?.map((name, at) => counts[at] || at === 0
    ? h("span", { class: "step" }, h("i", { class: by.tones[at], "aria-hidden": "true" }), `${name} ${number(counts[at])}`) : null));
}

/** @param {any} cluster @param {string} label @returns {{name: string, rows: number[]}[]} */
export function groups(cluster, label) {
  const all = cluster.nodes.name.map((/** @type {string} */ _, /** @type {number} */ row) => row);
  const column = cluster.labels[label];
  if (!column) return [{ name: "All nodes", rows: all }];
  /** @type {Map<string, number[]>} */ const found = new Map();
  for (const row of all) {
    const value = column.index[row] < 0 ? "" : column.values[column.index[row]];
    const rows = found.get(value);
    if (rows) rows.push(row);
    else found.set(value, [row]);
  }
  return [...found].sort((a, b) => a[0].localeCompare(b[0])).map(([name, rows]) => ({ name: name || `no ${label}`, rows }));
}

/** @param {any} cluster */
export const defaultGroup = cluster => cluster.labels[ZONE] ? ZONE : "";

/** One line about a node. @param {any} cluster @param {number} row */
export function describe(cluster, row) {
  const nodes = cluster.nodes;
  const parts = cluster.resources.slice(0, 4).filter((/** @type {string} */ _, /** @type {number} */ at) => nodes.allocatable[at][row])
    .map((/** @type {string} */ name, /** @type {number} */ at) => `${resourceName(name)} ${amount(name, nodes.requested[at][row])} of ${amount(name, nodes.allocatable[at][row])}`);
  const taint = !(cluster.taints.index[row] >= 0) ? "" : `\n${cluster.taints.values[cluster.taints.index[row]]}`;
  return `${nodes.name[row]}\n${parts.join("\n")}${taint}`;
}

/** @param {string} name @param {[string, string][]} choices @param {string} now @param {(value: string) => void} choose */
export const choice = (name, choices, now, choose) => h("label", { class: "field" }, name,
  h("select", { onchange: (/** @type {any} */ event) => choose(event.target.value) }, choices.map(([value, text]) => h("option", { value, selected: value === now }, text))));

/** A node with its pods drawn to size. @param {any} cluster @param {number} row @param {number} resource @param {Colouring} by */
function card(cluster, row, resource, by) {
  const nodes = cluster.nodes, name = nodes.name[row], bits = nodes.state[row], kind = cluster.resources[resource];
  const have = nodes.allocatable[resource][row] || 1, used = nodes.requested[resource][row];
  const pods = cluster.pods[name].slice().sort((/** @type {any} */ a, /** @type {any} */ b) => b[1][resource] - a[1][resource]);
  const flags = [!(bits & READY) && ["bad", "not ready"], bits & CORDONED && ["warn", "cordoned"], bits & PRESSURE && ["bad", "pressure"], cluster.taints.index[row] >= 0 && ["", "tainted"]].filter(Boolean);
  const tint = by.tones[by.kind?.(row) ?? 0];
  const bay = h("span", { class: "bay", "aria-hidden": "true" }, pods.map((/** @type {any} */ pod, /** @type {number} */ at) => {
    const share = pod[1][resource] / have;
    return h("i", { class: by.share ? `s${4 - at % 3}` : tint, title: `${pod[0]}: ${amount(kind, pod[1][resource])}`, "width%": Math.max(0.8, share * 100) }, by.share && share > NAMED_SHARE ? pod[0].slice(pod[0].indexOf("/") + 1) : null);
  }));
  const amounts = `${amount(kind, used)} of ${amount(kind, have)} ${resourceName(kind)}`;
  return h("button", {
    type: "button", class: "card", "aria-pressed": String(route().params.node === name), "data-node": name,
    "aria-label": `${name}, ${amounts}, ${counted(pods.length, "pod")}${flags.map(flag => `, ${/** @type {any} */ (flag)[1]}`).join("")}`,
    onclick: () => change({ node: name, pod: null }),
  }, h("span", { class: "head" }, h("b", {}, name), h("span", { class: "dim" }, percent(used / have))), bay,
  h("span", { class: "foot" }, h("span", {}, by.kinds ? by.kinds[by.kind?.(row) ?? 0] : amounts),
    h("span", { class: flags.some(flag => /** @type {any} */ (flag)[0] === "bad") ? "alert" : undefined }, flags.length ? flags.map(flag => /** @type {any} */ (flag)[1]).join(", ") : counted(pods.length, "pod"))));
}

/** Everything that a card shows. @param {any} cluster @param {number} row @param {number} resource @param {Colouring} by */
const cardKey = (cluster, row, resource, by) => JSON.stringify([cluster.nodes.name[row], cluster.pods[cluster.nodes.name[row]], cluster.nodes.state[row], cluster.taints.index[row],
  cluster.nodes.allocatable[resource][row], cluster.nodes.requested[resource][row], resource, by.kinds?.[by.kind?.(row) ?? 0], route().params.node === cluster.nodes.name[row]]);

/** Sections of groups with a card for each node. @param {any[]} found @param {(row: number) => any} make */
export const sections = (found, make) => found.map(one => h("section", { class: "group" }, h("h2", {}, h("span", {}, one.name), h("span", {}, counted(one.rows.length, "node"))), h("div", { class: "cards" }, one.rows.map(make))));

/** @param {HTMLElement} main */
export function open(main) {
  /** @type {NodeMap | null} */ let map = null;
  /** @type {any} */ let fit = null;
  let grouped = /** @type {any} */ ({}), shownBar = "";
  /** By what they show: a card that is the same stays, so that a click on it is not lost. @type {Map<string, any>} */ let cards = new Map();
  const bar = h("div", { class: "bar" }), second = h("div", { class: "bar second" }), problem = h("div", {}), content = h("div", {}), said = h("div", {});
  main.append(h("h1", { class: "hidden" }, "Cluster"), bar, second, problem, content, said);
  main.classList.add("fixed");

  /** Only if something is different: a list that is open would close. @param {any} cluster @param {string} name @param {string} group */
  const drawBar = (cluster, name, group) => {
    const wanted = route().params.fit ?? "";
    const names = [...cluster.resources.map((/** @type {string} */ one) => [one, `${resourceName(one)} requested`]), ["state", "State"], ["taint", "Taint"], ["stranded", "Stranded"], ...(fit ? [["fit", `Fit for ${fit.pod}`]] : [])];
    const short = (/** @type {string} */ one) => one.replace(/^.*\//, ""), keys = Object.keys(cluster.labels);
    const labels = keys.map(one => /** @type {[string, string]} */ ([one, one === ZONE || keys.filter(other => short(other) === short(one)).length === 1 ? short(one) : one]));
    const key = JSON.stringify([name, group, wanted, names, labels, Boolean(cluster.pods)]);
    if (key === shownBar) return;
    shownBar = key;
    const focus = document.activeElement?.closest("label.field")?.firstChild?.textContent;
    show(bar,
      choice("Colour", names, name, value => change({ colour: value, fit: value === "fit" ? wanted : null })),
      choice("Group", [["", "nothing"], ...labels], group, value => change({ group: value || "none" })),
      fitField(wanted),
      cluster.pods ? null : h("span", { class: "push" }, h("button", { type: "button", "aria-label": "Smaller cells", onclick: () => zoom(-1) }, icon("minus")), " ", h("button", { type: "button", "aria-label": "Larger cells", onclick: () => zoom(1) }, icon("plus"))));
    if (focus) for (const label of bar.querySelectorAll("label.field")) if (label.firstChild.textContent === focus) label.querySelector("select, input")?.focus();
  };

  const draw = () => {
    const cluster = state.cluster, params = route().params;
    if (!cluster) return;
    if (!cluster.nodes.name.length) {
      shownBar = "";
      show(bar);
      show(content, empty("There are no nodes", "They appear here as soon as they are created: kubectl apply, or bayplan up --nodes 12."));
      return;
    }
    const name = params.fit && fit ? "fit" : params.colour || "cpu", group = params.group ?? defaultGroup(cluster);
    const by = colouring(cluster, name, fit);
    const key = `${group} ${cluster.nodes.name.length} ${cluster.nodes.name[0]}`;
    if (grouped.key !== key || grouped.labels !== cluster.labels) grouped = { key, labels: cluster.labels, value: groups(cluster, group) };
    drawBar(cluster, name, group);
    show(second, h("span", {}, free(cluster, params.colour || "cpu")), legend(by, cluster.nodes.name.length));
    const resource = Math.max(0, cluster.resources.indexOf(params.colour || "cpu"));
    if (cluster.pods) {
      map?.close();
      map = null;
      const kept = document.activeElement?.getAttribute("data-node"), before = cards;
      cards = new Map();
      show(content, sections(grouped.value, row => {
        const shown = cardKey(cluster, row, resource, by), made = before.get(shown) ?? card(cluster, row, resource, by);
        cards.set(shown, made);
        return made;
      }));
      if (kept) content.querySelector(`[data-node="${CSS.escape(kept)}"]`)?.focus();
      return;
    }
    if (!map) {
      map = new NodeMap();
      show(content, map.box);
      content.className = "fill";
    }
    map.fit(Number(params.size) || 0);
    map.show({
      groups: grouped.value, ...colours(by), label: row => describe(state.cluster, row), selected: state.rows.get(params.node ?? "") ?? -1,
      marked: new Set(fit?.chosen ? [state.rows.get(fit.chosen) ?? -1] : []), open: row => change({ node: state.cluster.nodes.name[row], pod: null }),
    });
    show(said, summary(grouped.value, row => by.share?.(row) ?? null));
  };

  const zoom = (/** @type {number} */ by) => map && change({ size: Math.max(3, Math.min(40, map.size + by * Math.max(1, Math.round(map.size / 5)))) }, true);

  const fitField = (/** @type {string} */ now) => h("label", { class: "field" }, "Fit for", h("input", {
    type: "text", value: now, placeholder: "namespace/pod", size: 16,
    onchange: (/** @type {any} */ event) => change({ fit: event.target.value.trim() || null }),
  }));

  const loadFit = async () => {
    const wanted = route().params.fit ?? "";
    if ((fit?.pod ?? "") === wanted && fit?.at === route().at) return;
    fit = null;
    show(problem);
    if (wanted) {
      try {
        fit = { ...await get("fit", { pod: wanted, at: route().at }), at: route().at };
      } catch (error) {
        show(problem, h("p", { class: "alert", role: "alert" }, `${wanted}: ${/** @type {Error} */ (error).message}`));
      }
    }
    draw();
  };

  const stop = listen(topic => {
    if (topic === "cluster" || topic === "rows") draw();
  });
  draw();
  loadFit();
  return { update: () => { draw(); loadFit(); }, close: () => { stop(); map?.close(); main.classList.remove("fixed"); } };
}

/** What is free, and what of it no usual pod could use. @param {any} cluster @param {string} resource */
function free(cluster, resource) {
  const at = cluster.resources.indexOf(resource);
  if (at < 0) return "";
  const nodes = cluster.nodes;
  let left = 0, stranded = 0;
  for (let row = 0; row < nodes.name.length; row++) {
    const one = Math.max(0, nodes.allocatable[at][row] - nodes.requested[at][row]);
    left += one;
    stranded += one * nodes.stranded[row];
  }
  return `${amount(resource, left > 1e6 && resource === "cpu" ? Math.round(left / 1000) * 1000 : left)}${resource === "cpu" ? (left === 1000 ? " CPU" : " CPUs") : resource === "memory" || resource === "ephemeral-storage" ? "" : ` ${resource}`} free, ${left ? percent(stranded / left) : "0 %"} stranded`;
}

/** @param {string} node */
export const nodeLink = node => h("a", { href: href("node", node), class: "mono" }, node);
/** @param {string} pod */
export const podLink = pod => h("a", { href: href("pod", pod) }, pod);
