// Time: along the bottom of every view, and a view of its own with charts.

import { get } from "./api.js";
import { $, clock, duration, empty, h, icon, number, percent, resourceName, show, svg } from "./dom.js";
import { failed } from "./inspect.js";
import { apply, change, load, listen, route, state } from "./state.js";

const SPEEDS = [1, 10, 60, 600];
const PLAYED_SECONDS = 60;

export const line = { data: /** @type {any} */ (null), playing: false };

/** That of the address, or the slowest that plays everything within a minute. */
function speed() {
  const span = line.data ? line.data.time - line.data.firstTime : 0;
  return Number(route().params.speed) || (SPEEDS.find(one => span / one <= PLAYED_SECONDS) ?? 600);
}

/** Moves to a state. @param {Record<string, string | number>} to */
async function go(to) {
  const from = route().at ?? state.lastSeq, before = location.hash;
  const batch = await get("changes", { from, ...to });
  if (location.hash !== before) return batch; // the user has gone elsewhere meanwhile
  // Leaving the present is one step of the browser's history, moving in the past is none.
  const replace = route().at !== null;
  if (batch.layout || state.cluster?.pods || from !== state.cluster?.seq) {
    change({ at: batch.seq }, replace);
    await load();
  } else {
    apply(batch, false);
    change({ at: batch.seq }, replace);
  }
  return batch;
}

const shownTime = () => route().at === null ? (line.data?.time ?? 0) : state.cluster?.time ?? 0;

/** @param {any[]} samples @param {(one: any) => number} value @param {number} from @param {number} to @param {number} height @param {number} width */
function points(samples, value, from, to, height, width) {
  const most = Math.max(1e-9, ...samples.map(value)), span = Math.max(1e-9, to - from);
  return samples.map(one => `${((one.time - from) / span * width).toFixed(1)},${(48 - value(one) / most * height).toFixed(1)}`);
}

/** Attempts in each interval between samples. @param {any[]} samples */
const rates = samples => samples.map((one, at) => ({ ...one, rate: at ? (one.scheduled + one.failed - samples[at - 1].scheduled - samples[at - 1].failed) / Math.max(0.1, one.time - samples[at - 1].time) : 0 }));

function drawStrip() {
  const data = line.data, box = $("time").querySelector(".strip svg");
  if (!data || !box) return;
  const from = data.firstTime, to = Math.max(data.time, from + 1), samples = rates(data.samples);
  const parts = [];
  if (samples.length) {
    samples.unshift({ ...samples[0], time: from, rate: 0 });
    samples.push({ ...samples[samples.length - 1], time: to, rate: 0 });
  }
  if (samples.length > 1) {
    const ends = (/** @type {string[]} */ list) => `M${list[0].split(",")[0]},48 L${list.join(" L")} L${list.at(-1)?.split(",")[0]},48Z`;
    parts.push(svg("path", { class: "area", d: ends(points(samples, one => one.pending, from, to, 46, 1000)) }));
    parts.push(svg("path", { class: "area more", d: ends(points(samples, one => one.rate, from, to, 24, 1000)) }));
  }
  const x = Math.max(0, Math.min(1000, (shownTime() - from) / (to - from) * 1000));
  parts.push(svg("line", { class: "needle", x1: x, x2: x, y1: 0, y2: 48 }));
  show(box, parts);
  const range = $("time").querySelector("input");
  if (document.activeElement !== range || !line.playing) {
    range.min = String(from);
    range.max = String(to);
    range.value = String(shownTime());
  }
  range.setAttribute("aria-valuetext", clock(shownTime()));
  $("time").querySelector(".clock").textContent = clock(shownTime());
  $("time").querySelector(".live").hidden = route().at === null;
  $("time").querySelector(".speed").value = String(speed());
}

let busy = false, next = /** @type {number | null} */ (null);
/** Moves to a time; while it moves, only the last one that was asked for is remembered. @param {number} time */
async function seek(time) {
  next = time;
  if (busy) return;
  busy = true;
  while (next !== null) {
    const to = next;
    next = null;
    await go({ time: to }).catch(() => {}); // the header says that there is no connection
  }
  busy = false;
}

async function play() {
  line.playing = !line.playing;
  button();
  let before = performance.now(), time = shownTime();
  if (line.playing && route().at === null) {
    await go({ to: line.data.firstSeq });
    time = line.data.firstTime;
  }
  while (line.playing) {
    await new Promise(done => setTimeout(done, 120));
    if (!line.playing) break; // paused meanwhile
    const now = performance.now();
    time += (now - before) / 1000 * speed();
    before = now;
    const batch = await go({ time }).catch(() => null);
    if (!batch || time >= line.data.time) break;
    drawStrip();
  }
  line.playing = false;
  button();
}

function button() {
  const it = $("time").querySelector(".play");
  it.setAttribute("aria-label", line.playing ? "Pause" : "Play");
  show(it, icon(line.playing ? "pause" : "play"));
}

/** @param {string} where */
async function stepTo(where) {
  line.playing = false;
  const batch = await go({ step: where });
  const found = batch.decisions.find((/** @type {any} */ one) => one.seq === batch.seq);
  $("note").textContent = found ? `${clock(found.time)}: ${found.pod} ${found.result} ${found.node}` : clock(batch.time);
}

export function start() {
  const foot = $("time");
  show(foot,
    h("div", { class: "set" },
      h("button", { type: "button", class: "extra", "aria-label": "Previous decision", onclick: () => stepTo("previous") }, icon("back")),
      h("button", { type: "button", class: "play", "aria-label": "Play", onclick: play }, icon("play")),
      h("button", { type: "button", class: "extra", "aria-label": "Next decision", onclick: () => stepTo("next") }, icon("next")),
      h("span", { class: "clock" })),
    h("div", { class: "strip" }, svg("svg", { viewBox: "0 0 1000 48", preserveAspectRatio: "none", "aria-hidden": "true" }),
      h("input", { type: "range", step: "any", "aria-label": "Time", oninput: (/** @type {any} */ event) => { line.playing = false; seek(Number(event.target.value)); } })),
    h("div", { class: "set" },
      h("label", { class: "field extra" }, h("span", { class: "hidden" }, "Speed"), h("select", { class: "speed", onchange: (/** @type {any} */ event) => change({ speed: event.target.value }, true) }, SPEEDS.map(one => h("option", { value: one }, `${one}×`)))),
      h("button", { type: "button", class: "live", hidden: true, onclick: () => { line.playing = false; change({ at: null }); } }, state.info?.live ? "Live" : "To the end")));
  button();
  refresh();
  setInterval(() => { if (state.info?.live && !document.hidden) refresh(); }, 2000);
  listen(topic => { if (topic === "cluster" || topic === "rows" || topic === "status") drawStrip(); });
  addEventListener("hashchange", drawStrip);
}

export async function refresh() {
  try {
    line.data = await get("timeline");
  } catch {
    return; // the header says that there is no connection
  }
  drawStrip();
}

// The view

const CHART_GAP = 40, WIDE = 1900;

/** In pixels, so that text has its size on a phone, too; as the grid of charts in style.css. */
function chartWidth() {
  const whole = $("main").clientWidth - 40, least = innerWidth >= WIDE ? 900 : 520, columns = Math.max(1, Math.floor((whole + CHART_GAP) / (least + CHART_GAP)));
  return Math.max(300, Math.floor((whole - (columns - 1) * CHART_GAP) / columns));
}

/** @param {string} title @param {{name: string, at: [number, number][]}[]} series @param {(value: number) => string} format @param {boolean} [dots] */
function chart(title, series, format, dots = false) {
  const W = chartWidth(), H = innerWidth >= WIDE ? 380 : 190, L = 88, B = 22;
  const all = series.flatMap(one => one.at);
  if (all.length < 2) return h("div", {}, h("h2", {}, title), h("p", { class: "dim" }, "There is not enough to draw yet."));
  const from = line.data.firstTime, to = Math.max(line.data.time, from + 1), most = Math.max(1e-9, ...all.map(one => one[1]));
  const x = (/** @type {number} */ time) => L + (time - from) / (to - from) * (W - L - 4), y = (/** @type {number} */ value) => H - B - value / most * (H - B - 12);
  const now = x(Math.min(to, Math.max(from, shownTime())));
  const last = series.map(one => `${one.name} ${format(one.at.at(-1)?.[1] ?? 0)}`).join(", ");
  return h("div", {}, h("h2", {}, title), svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${title}; at the end ${last}` },
    [0, 0.5, 1].map(share => [svg("line", { class: "axis", x1: L, x2: W, y1: y(share * most), y2: y(share * most) }), svg("text", { x: L - 6, y: y(share * most) + 4, "text-anchor": "end" }, format(share * most))]).flat(),
    svg("text", { x: L, y: H - 4 }, clock(from)), svg("text", { x: W - 4, y: H - 4, "text-anchor": "end" }, clock(to)),
    series.map((one, at) => dots ? one.at.map(([time, value]) => svg("circle", { class: "dot", cx: x(time).toFixed(1), cy: y(value).toFixed(1), r: 2 })) : svg("polyline", { class: `line l${at}`, points: one.at.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ") })).flat(),
    svg("line", { class: "now", x1: now, x2: now, y1: 8, y2: H - B })),
  series.length > 1 ? h("div", { class: "legend" }, series.map((one, at) => h("span", { class: "step" }, svg("svg", { width: 22, height: 10, "aria-hidden": "true" }, svg("line", { class: `line l${at}`, x1: 0, x2: 22, y1: 5, y2: 5 })), one.name))) : null);
}

/** @param {HTMLElement} main */
export function open(main) {
  const part = h("div", { class: "charted" });
  main.append(h("h1", { class: "hidden" }, "Time"), part);
  const draw = () => {
    const data = line.data;
    if (!data) return;
    if (!data.seq || data.samples.length < 2) {
      show(part, empty("Nothing has happened yet", state.info?.source === "files" ? "A file is one state of a cluster. For a series of states, use --scenario or --recording." : "The page remembers what it sees, from the moment at which it was opened."));
      return;
    }
    const rate = rates(data.samples), names = Object.keys(data.samples[0].used).slice(0, 4);
    const waits = data.waits.map((/** @type {number[]} */ one) => one[1]).sort((/** @type {number} */ a, /** @type {number} */ b) => a - b);
    const at = (/** @type {number} */ share) => waits.length ? duration(waits[Math.min(waits.length - 1, Math.floor(share * waits.length))]) : "–";
    show(part,
      h("p", { class: "lead" }, `${clock(data.firstTime)} to ${clock(data.time)}`),
      h("p", { class: "sub" }, `${number(data.samples.at(-1).scheduled)} scheduled, ${number(data.samples.at(-1).failed)} failed attempts · waiting time: half below ${at(0.5)}, 9 of 10 below ${at(0.9)}, 99 of 100 below ${at(0.99)}`),
      h("div", { class: "columns charts" },
        chart("Requested share", names.map(name => ({ name: resourceName(name), at: data.samples.map((/** @type {any} */ one) => [one.time, one.used[name]]) })), percent),
        chart("Pending pods", [{ name: "pending", at: data.samples.map((/** @type {any} */ one) => [one.time, one.pending]) }], value => number(Math.round(value))),
        chart("Attempts per second", [{ name: "attempts", at: rate.map(one => [one.time, one.rate]) }], value => value.toLocaleString("en", { maximumFractionDigits: value < 1 ? 2 : 1 })),
        chart("Waiting time of scheduled pods", [{ name: "waited", at: data.waits }], duration, true)));
  };
  const load = () => refresh().then(draw, error => show(part, failed(error, load)));
  const stop = listen(topic => { if (topic === "rows" || topic === "cluster" || topic === "status") draw(); });
  addEventListener("resize", draw);
  load();
  return { update: draw, close: () => { stop(); removeEventListener("resize", draw); }, wide: true };
}
