// What the page shows: the cluster as the server sent it, and the state in the address.

import { follow, get } from "./api.js";

/**
 * @typedef {{view: string, id: string, params: Record<string, string>, at: number | null}} Route
 * `id` is what comes after the view: a pod, a node, the number of a decision.
 */

export const state = {
  /** @type {any} */ info: null,
  /** The cluster in columns, at the time that is shown. @type {any} */ cluster: null,
  /** By name of a node: its position in the columns. @type {Map<string, number>} */ rows: new Map(),
  /** The latest attempts that arrived. @type {any[]} */ decisions: [],
  connected: false,
  scheduled: 0,
  failed: 0,
  rate: 0,
  lastSeq: 0,
  lastTime: 0,
};

/** @typedef {"cluster" | "rows" | "decisions" | "status"} Topic */
/** @type {Set<(topic: Topic, detail?: any) => void>} */
const listeners = new Set();

/** @param {(topic: Topic, detail?: any) => void} listener @returns {() => void} */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** @param {Topic} topic @param {any} [detail] */
export function tell(topic, detail) {
  for (const listener of [...listeners]) listener(topic, detail);
}

// The address

/** @returns {Route} */
export function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/").map(decoded);
  const params = Object.fromEntries(new URLSearchParams(query ?? ""));
  const at = /^\d+$/.test(params.at ?? "") ? Number(params.at) : null;
  return { view: view || "cluster", id: rest.join("/"), params, at };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // not an address that the page has made
  }
}

/**
 * The address of a view; the time that is shown and the speed stay, unless `params` has others.
 * @param {string} view @param {string} [id] @param {Record<string, string | number | null | undefined>} [params]
 */
export function href(view, id = "", params = {}) {
  /** @type {Record<string, string | number | null | undefined>} */ const all = { at: route().at, speed: route().params.speed, ...params };
  const given = Object.entries(all).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  const path = [view, ...(id ? id.split("/") : [])].map(encodeURIComponent).join("/");
  return `#/${path}${query ? `?${query}` : ""}`;
}

/** Changes parameters of the address. @param {Record<string, string | number | null>} changes @param {boolean} [replace] */
export function change(changes, replace = false) {
  const now = route();
  const to = href(now.view, now.id, { ...now.params, ...changes });
  if (replace) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

const MAX_IN_ADDRESS = 2000;

/** A text for the address. A long one stays in this tab, and the address names it. @param {string} text */
export function stow(text) {
  if (text.length <= MAX_IN_ADDRESS) return text;
  let hash = 0;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 16777619) >>> 0;
  const name = `@${hash.toString(36)}-${text.length}`;
  sessionStorage.setItem(name, text);
  return name;
}

/** The text of an address; null if it is in another tab or browser. @param {string} text */
export const unstow = text => text.startsWith("@") ? sessionStorage.getItem(text) : text;

// The cluster

/** @param {any} cluster */
function setCluster(cluster) {
  state.cluster = cluster;
  state.rows = new Map(cluster.nodes.name.map((/** @type {string} */ name, /** @type {number} */ index) => [name, index]));
  tell("cluster");
}

let wanted = 0;
/** What is being loaded. @type {{at: number, promise: Promise<void>} | null} */
let loading = null;

/** Loads the cluster at the time of the address. A past state that is there or on its way is not asked for again. */
export function load() {
  const at = route().at;
  if (at !== null && loading?.at === at) return loading.promise;
  const mine = ++wanted; // what else is on its way is no longer wanted
  loading = null;
  if (at !== null && state.cluster?.seq === at) return Promise.resolve();
  const promise = get("cluster", { at }).then(cluster => { if (mine === wanted) setCluster(cluster); }).finally(() => { if (mine === wanted) loading = null; });
  loading = at === null ? null : { at, promise };
  return promise;
}

/** @param {any} batch @param {boolean} live */
export function apply(batch, live) {
  if (live) {
    state.lastSeq = batch.seq;
    state.rate = batch.decisions.length && batch.time > state.lastTime ? batch.decisions.length / (batch.time - state.lastTime) : 0;
    state.lastTime = batch.time;
    state.scheduled = batch.scheduled;
    state.failed = batch.failed;
    if (batch.decisions.length) {
      state.decisions = [...batch.decisions.slice().reverse(), ...state.decisions].slice(0, 500);
      tell("decisions", batch.decisions);
    }
    if (route().at !== null) {
      tell("status");
      return;
    }
  }
  const cluster = state.cluster;
  if (!cluster) return;
  if (batch.layout || cluster.pods) {
    loadSoon();
  } else {
    for (const row of batch.nodes) {
      const index = state.rows.get(row.name);
      if (index === undefined) continue;
      cluster.nodes.pods[index] = row.pods;
      cluster.nodes.state[index] = row.state;
      row.requested.forEach((/** @type {number} */ one, /** @type {number} */ at) => { cluster.nodes.requested[at][index] = one; });
    }
    cluster.seq = batch.seq;
    cluster.time = batch.time;
    tell("rows", batch.nodes);
  }
  cluster.totals = batch.totals;
  tell("status");
}

/** @type {any} */
let soon = null;
function loadSoon() {
  soon ??= setTimeout(() => { soon = null; load().catch(() => {}); }, 300);
}

/** @type {EventSource | null} */
let stream = null;

/** Follows the live cluster from now on. */
export async function connect() {
  stream?.close();
  state.info = await get("info");
  state.lastSeq = state.info.seq;
  await load();
  if (!state.info.live) {
    state.connected = true;
    tell("status");
    return;
  }
  resume();
}

/** Loads everything again, as soon as the server responds. */
function again() {
  connect().catch(() => setTimeout(again, 1500));
}

/** Reads on where the page has stopped. */
function resume() {
  stream?.close();
  stream = follow(state.lastSeq, {
    changes: batch => apply(batch, true),
    reset: again,
    state: connected => { state.connected = connected; tell("status"); },
  });
}

// A browser allows six connections to a server, so that a page which nobody sees must not keep one.
document.addEventListener("visibilitychange", () => {
  if (!state.info?.live) return;
  if (document.hidden) {
    stream?.close();
    stream = null;
  } else if (!stream) resume();
});
addEventListener("pagehide", () => { stream?.close(); stream = null; });
addEventListener("pageshow", event => { if (event.persisted && state.info?.live) resume(); });
