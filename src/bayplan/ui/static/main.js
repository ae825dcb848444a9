// Starts the page: views by address, the inspector, search and status.

import { ApiError, get, logOut, path } from "./api.js";
import { $, amount, announce, h, number, percent, resourceName, show } from "./dom.js";
import * as cluster from "./cluster.js";
import * as compare from "./compare.js";
import * as decisions from "./decisions.js";
import { openGroup } from "./groups.js";
import { drawNode, drawPod, fill, nothing, openNode, openPod } from "./inspect.js";
import * as queue from "./queue.js";
import { change, connect, href, listen, load, route, state } from "./state.js";
import * as time from "./time.js";
import * as whatif from "./whatif.js";

/** @typedef {{update: () => void, close: () => void, wide?: boolean, own_side?: boolean}} View */
/** @type {Record<string, [string, (main: HTMLElement) => View]>} */
const VIEWS = {
  cluster: ["Cluster", cluster.open], queue: ["Queue", queue.open], decisions: ["Decisions", decisions.open],
  whatif: ["What if", whatif.open], compare: ["Compare", compare.open], time: ["Time", time.open],
};
/** @type {Record<string, [string, (main: HTMLElement) => View]>} */
const OTHERS = { pod: ["Pod", openPod], node: ["Node", openNode], group: ["Group", openGroup] };

/** @type {View | null} */
let view = null;
let shown = "", at = /** @type {number | null} */ (null), inspected = "";

function navigate() {
  const now = route(), found = VIEWS[now.view] ?? OTHERS[now.view];
  if (!found) {
    location.replace("#/cluster");
    return;
  }
  if (now.at !== at) {
    at = now.at;
    load().catch(() => {}); // the header says that there is no connection
  }
  const key = `${now.view}/${now.id}`;
  if (key === shown) view?.update();
  else {
    view?.close();
    const main = $("main");
    main.replaceChildren();
    shown = key;
    inspected = "-";
    show($("side"));
    view = found[1](main);
    document.body.classList.toggle("wide", Boolean(view.wide));
    main.scrollTop = 0;
    document.title = `${now.id || found[0]} · bayplan`;
  }
  drawNav(now.view);
  inspect();
}

/** @param {string} current */
function drawNav(current) {
  const pending = state.cluster?.totals.pending ?? 0;
  show($("nav"), Object.entries(VIEWS).map(([key, [title]]) => h("a", { href: href(key), "aria-current": key === current ? "page" : undefined }, title,
    key === "queue" && pending ? h("span", { class: "count" }, number(pending)) : null)));
  if (innerWidth <= 760) $("nav").querySelector("[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
}

/** The last part of a path or address of a cluster. */
const shortName = () => state.info.name.split("/").filter(Boolean).pop() ?? state.info.name;

/** Shows the node or pod of the address at the side. */
function inspect() {
  if (view?.wide || view?.own_side) return;
  const { node, pod } = route().params, key = `${pod ?? ""} ${node ?? ""} ${at}`;
  if (key === inspected) return;
  inspected = key;
  const side = $("side");
  if (pod) fill(side, () => get(`pods/${path(pod)}`, { at }), drawPod);
  else if (node) fill(side, () => get(`nodes/${path(node)}`, { at }), drawNode);
  else if (innerWidth > 760) show(side, overview());
  else show(side);
}

/** The sums of the cluster, where nothing is selected. */
function overview() {
  const totals = state.cluster?.totals;
  if (!totals) return nothing();
  return cluster_summary(totals);
}

/** An amount of a whole cluster. @param {string} name @param {number} value */
const rounded = (name, value) => amount(name, name === "cpu" && value > 1e5 ? Math.round(value / 1000) * 1000 : value);

/** @param {any} totals */
function cluster_summary(totals) {
  return [h("h1", { title: state.info.name }, shortName()), h("p", { class: "sub" }, `Kubernetes ${state.info.release} · ${number(totals.nodes)} nodes, ${number(totals.ready)} ready · ${number(totals.assigned)} pods with a node, ${number(totals.pending)} pending`),
    Object.entries(totals.resources).filter(([, one]) => /** @type {any} */ (one).allocatable).map(([name, one]) => {
      const use = /** @type {any} */ (one), share = use.requested / use.allocatable;
      return [h("h2", {}, resourceName(name)), h("div", { class: "track" }, h("i", { class: "s4", "width%": Math.min(100, share * 100) })), h("p", { class: "dim" }, `${rounded(name, use.requested)} of ${rounded(name, use.allocatable)} requested, ${percent(share)}`)];
    }),
    state.info.warnings.length ? h("details", {}, h("summary", {}, `${state.info.warnings.length} remarks on this cluster`), state.info.warnings.map((/** @type {any} */ one) => h("p", { class: "dim" }, one.message))) : null,
    h("p", { class: "dim small gap" }, "Choose a node to see its pods drawn to size.")];
}

function drawStatus() {
  const box = $("status"), info = state.info, totals = state.cluster?.totals;
  if (!info || !totals) return;
  const past = route().at !== null;
  box.className = !state.connected ? "off" : past ? "past" : "";
  const words = [shortName(), `v${info.release}`];
  if (!state.connected) words.push("no connection, trying again");
  else if (past) words.push(`as of ${new Date(state.cluster.time * 1000).toLocaleTimeString("en-GB")}`);
  else if (!info.live) words.push(info.source);
  else if (state.rate > 0.5) words.push(`${number(Math.round(state.rate))} decisions/s`);
  words.push(totals.ready === totals.nodes ? `${number(totals.nodes)} nodes` : `${number(totals.ready)} of ${number(totals.nodes)} nodes ready`);
  show(box, h("i", { "aria-hidden": "true" }), h("span", { title: info.name }, words.join(" · ")));
}

// Search

function search() {
  const input = $("find"), list = $("found");
  /** @type {{text: string, to: string}[]} */ let found = [];
  let chosen = 0, timer = /** @type {any} */ (null);
  const draw = () => {
    list.hidden = !input.value.trim();
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.setAttribute("aria-activedescendant", found.length ? `found-${chosen}` : "");
    show(list, found.length ? found.map((one, index) => h("li", { id: `found-${index}`, role: "option", "aria-selected": String(index === chosen), onmousedown: () => { location.hash = one.to; } }, h("span", {}, one.text), h("span", { class: "dim" }, one.to.startsWith("#/pod") ? "pod" : "node"))) : h("li", { role: "option", "aria-selected": "false" }, "nothing found"));
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const answer = await get("search", { q: input.value, at: route().at }).catch(() => ({ nodes: [], pods: [] }));
      found = [...answer.nodes.map((/** @type {string} */ text) => ({ text, to: href("node", text) })), ...answer.pods.map((/** @type {string} */ text) => ({ text, to: href("pod", text) }))];
      chosen = 0;
      draw();
      announce(`${found.length} found`);
    }, 120);
  });
  input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.max(0, Math.min(found.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      draw();
    } else if (event.key === "Escape") {
      input.value = "";
      draw();
    }
  });
  input.addEventListener("blur", () => setTimeout(() => { list.hidden = true; input.setAttribute("aria-expanded", "false"); }, 150));
  $("search").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    if (found[chosen]) {
      location.hash = found[chosen].to;
      input.value = "";
      input.blur();
    }
  });
}

addEventListener("keydown", event => {
  const typing = event.target instanceof Element && event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    $("find").focus();
  } else if (event.key === "Escape" && !typing && (route().params.node || route().params.pod)) {
    change({ node: null, pod: null });
  }
});

let pending = -1;
listen(topic => {
  if (topic === "cluster" || topic === "rows" || topic === "status") {
    drawStatus();
    if (state.cluster && state.cluster.totals.pending !== pending) {
      pending = state.cluster.totals.pending;
      drawNav(route().view);
    }
    if (inspected === `  ${at}` && !view?.wide && !view?.own_side && innerWidth > 760) show($("side"), overview());
  }
});

/** Milliseconds until the cluster has reported what was written. */
const REPORTED = 500;
addEventListener("written", () => setTimeout(() => { inspected = "-"; view?.update(); inspect(); }, REPORTED));

async function start() {
  search();
  $("logout").addEventListener("click", logOut);
  try {
    await connect();
  } catch (error) {
    show($("main"), h("div", { class: "empty", role: "alert" }, h("strong", {}, "The cluster cannot be loaded"), h("p", {}, error instanceof ApiError ? error.message : String(error)), h("button", { type: "button", onclick: () => location.reload() }, "Try again")));
    return;
  }
  document.body.classList.toggle("still", state.info.source === "files");
  time.start();
  addEventListener("hashchange", navigate);
  if (!location.hash) history.replaceState(null, "", "#/cluster");
  navigate();
  drawStatus();
  performance.mark("shown");
}

start();
