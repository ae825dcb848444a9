// Compare: two configurations, or two Kubernetes versions, on this cluster.

import { get, post } from "./api.js";
import { counted, duration, h, number, show, table } from "./dom.js";
import { podLink } from "./cluster.js";
import { failed } from "./inspect.js";
import { change, route, state, stow, unstow } from "./state.js";

/** @param {string} name @param {number} value */
function figure(name, value) {
  if (/^(utilisation|imbalance|fragmentation)/.test(name)) return `${(value * 100).toFixed(1)} %`;
  return name === "waiting" ? duration(value) : value.toLocaleString("en", { maximumFractionDigits: 2 });
}

/** @param {HTMLElement} main */
export function open(main) {
  const form = h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); change({ run: "yes", configA: stow(texts()[0]), configB: stow(texts()[1]) }); } }), part = h("div", {});
  main.append(h("h1", { class: "hidden" }, "Compare"), form, part);
  let shown = "-";
  const versions = () => [route().params.a || state.info.release, route().params.b || state.info.releases.find((/** @type {string} */ one) => one !== state.info.release) || state.info.release];
  const given = () => [route().params.configA ?? "", route().params.configB ?? ""].map(unstow);
  const texts = () => ["A", "B"].map(name => form.querySelector(`[name=config${name}]`).value);

  const side = (/** @type {number} */ at) => {
    const name = at ? "B" : "A", text = h("textarea", { name: `config${name}`, "aria-label": `Configuration ${name}`, placeholder: "the configuration of this page", value: given()[at] ?? "" });
    return h("div", {}, h("h2", {}, name), h("p", { class: "bar" }, h("label", { class: "field" }, "Kubernetes", h("select", { onchange: (/** @type {any} */ event) => change({ [name.toLowerCase()]: event.target.value, run: null }) }, state.info.releases.map((/** @type {string} */ one) => h("option", { value: one, selected: one === versions()[at] }, one))))),
      h("details", { open: Boolean(given()[at]) }, h("summary", {}, "Another configuration"), text, h("p", { class: "bar" }, h("button", { type: "button", onclick: async () => { text.value = (await get("configuration")).yaml; } }, "Start from this page's"))));
  };

  const draw = () => show(form, h("div", { class: "columns" }, side(0), side(1)), h("p", { class: "bar" },
    h("button", { type: "submit", class: "main" }, "Compare"),
    h("label", { class: "field" }, h("input", { type: "checkbox", checked: route().params.scratch !== "no", onchange: (/** @type {any} */ event) => change({ scratch: event.target.checked ? null : "no", run: null }) }), "Schedule all pods again, on empty nodes")));

  /** The form, and the answer if the address asks for it. */
  const update = () => {
    const key = JSON.stringify([route().params, route().at]);
    if (key === shown) return;
    shown = key;
    draw();
    if (given().some(one => one === null)) show(part, h("div", { class: "verdict" }, h("strong", {}, "A configuration of this link is not here"), "It was too long for the address, and stays in the tab in which it was entered."));
    else if (route().params.run) ask();
    else show(part, h("p", { class: "empty" }, "Compare schedules the same pods with A and with B on copies of this cluster, and lists what is different."));
  };

  const ask = async () => {
    const mine = shown;
    show(part, h("p", { class: "spin", role: "status" }, "Scheduling the pods twice…"));
    try {
      const [a, b] = versions(), [configA, configB] = given();
      const found = await post("compare", { at: route().at, fromScratch: route().params.scratch !== "no", variants: [{ name: `A: ${a}`, version: a, config: configA }, { name: `B: ${b}`, version: b, config: configB }] });
      if (mine !== shown) return;
      show(part,
        h("p", { class: "lead", role: "status" }, found.differenceCount ? `${counted(found.differenceCount, "pod")} of ${number(found.pods)} would go elsewhere` : `All ${number(found.pods)} pods would go to the same nodes`),
        h("div", { class: "columns" },
          h("div", {}, h("h2", {}, "Figures"), table(["", ...found.variants.map((/** @type {string} */ one) => h("th", { class: "n" }, one)), h("th", { class: "n" }, "B − A")], Object.entries(found.figures).map(([name, [x, y]]) => h("tr", {}, h("td", {}, name), h("td", { class: "n" }, figure(name, x.mean)), h("td", { class: "n" }, figure(name, y.mean)),
            h("td", { class: `n ${x.mean === y.mean ? "dim" : ""}` }, x.mean === y.mean ? "0" : (y.mean > x.mean ? "+" : "−") + figure(name, Math.abs(y.mean - x.mean))))), "Figures")),
          h("div", {}, h("h2", {}, "Pods that would go elsewhere"), found.differenceCount ? table(["pod", "A", "B"], Object.entries(found.differences).slice(0, 100).map(([pod, nodes]) => h("tr", {}, h("td", {}, podLink(pod)), ...(/** @type {any} */ (nodes)).map((/** @type {string} */ one) => h("td", {}, one || "–")))), "Differences") : h("p", { class: "dim" }, "None."))),
        found.failures.map((/** @type {string} */ one) => h("p", { class: "alert" }, one)));
    } catch (error) {
      show(part, failed(error, ask));
    }
  };
  update();
  return { update, close: () => {}, wide: true };
}
