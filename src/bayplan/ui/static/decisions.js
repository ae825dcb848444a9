// Decisions: a live stream with filters; one opens to its funnel, scores and candidates.

import { get } from "./api.js";
import { $, clock, counted, duration, empty, h, number, row, show } from "./dom.js";
import { choice, nodeLink } from "./cluster.js";
import { funnel, preemption, scores, warnings } from "./explain.js";
import { attempts, failed, fill, rejections, requested, waitsFor } from "./inspect.js";
import { change, href, listen, route, state } from "./state.js";

/** @type {[string, string][]} */
const RESULTS = [["", "all results"], ["scheduled", "scheduled"], ["unschedulable", "unschedulable"], ["error", "error"], ["waiting", "waiting at Permit"], ["rejected", "rejected later"]];

/** @param {HTMLElement} main */
export function open(main) {
  if (route().id) return openOne(main);
  const bar = h("div", { class: "bar" }), part = h("div", {});
  main.append(h("h1", { class: "hidden" }, "Decisions"), bar, part);
  /** @type {any[]} */ let list = [];
  let more = false;
  const body = h("tbody", { "aria-live": "off" });

  const cells = (/** @type {any} */ one, fresh = false) => row(href("decisions", String(one.seq)), [
    h("td", { class: "dim tight" }, clock(one.time)),
    h("td", { class: "long" }, h("a", { href: href("decisions", String(one.seq)) }, one.pod), h("div", { class: "phone dim" }, `${one.result}${one.node ? ` → ${one.node}` : ""}`)),
    h("td", { class: "tight optional" }, h("span", { class: `pill ${one.result === "scheduled" ? "good" : one.result === "waiting" ? "" : one.result === "error" ? "bad" : "warn"}` }, one.result)),
    h("td", { class: "tight optional" }, one.node ? nodeLink(one.node) : ""),
    h("td", { class: "optional" }, one.message || (one.feasible === 1 ? "the only feasible node" : one.feasible ? `best of ${counted(one.feasible, "feasible node")}` : ""), one.victims.length ? h("div", { class: "dim" }, `evicts ${one.victims.join(", ")}`) : null),
    h("td", { class: "n dim optional" }, duration(one.waitedSeconds)),
  ], fresh ? { class: "go arrived" } : {});

  const matches = (/** @type {any} */ one) => {
    const { result, q } = route().params;
    return (!result || one.result === result) && (!q || [one.pod, one.node, one.message].some(text => text.toLowerCase().includes(q.toLowerCase())));
  };

  const draw = () => {
    const params = route().params;
    if (state.info?.source === "files") show(bar);
    else show(bar, choice("Show", RESULTS, params.result ?? "", value => change({ result: value || null })),
      h("label", { class: "field" }, "with", h("input", { type: "text", value: params.q ?? "", placeholder: "pod, node or reason", onchange: (/** @type {any} */ event) => change({ q: event.target.value.trim() || null }) })),
      h("span", { class: "push" }, `${number(state.scheduled)} scheduled, ${number(state.failed)} failed attempts`));
    if (!list.length) {
      show(part, params.result || params.q ? empty("No decision matches", "Change the filters above.")
        : state.info?.source === "files" ? empty("A file has no decisions", "It is one state of a cluster. Explain a pending pod, or ask what if.", h("p", {}, h("a", { href: href("queue") }, "Pending pods")))
          : empty("No decision yet", "Decisions appear here from the moment at which the page was opened. To keep them from the start, use --record."));
      return;
    }
    show(body, list.map(one => cells(one)));
    show(part, h("table", { "aria-label": "Decisions" }, h("thead", {}, h("tr", {}, h("th", {}, "time"), h("th", {}, "pod"), h("th", { class: "optional" }, "result"), h("th", { class: "optional tight" }, "node"), h("th", { class: "optional" }, "why"), h("th", { class: "n optional" }, "waited"))), body),
      more ? h("button", { type: "button", onclick: older }, "Show older") : null);
  };

  const load = async () => {
    const { result, q } = route().params, at = route().at;
    try {
      const found = await get("decisions", { result, q, before: at === null ? null : at + 1 });
      list = found.decisions;
      more = found.more;
      if (!state.scheduled && !state.failed) {
        const line = await get("timeline");
        state.scheduled = line.samples.at(-1)?.scheduled ?? 0;
        state.failed = line.samples.at(-1)?.failed ?? 0;
      }
      draw();
    } catch (error) {
      show(part, failed(error, load));
    }
  };

  const older = async () => {
    const { result, q } = route().params;
    const found = await get("decisions", { result, q, before: list.at(-1).seq });
    list.push(...found.decisions);
    more = found.more;
    draw();
  };

  const stop = listen((topic, detail) => {
    if (topic !== "decisions" || route().at !== null) return;
    const fresh = detail.filter(matches);
    if (!fresh.length) return;
    const was = list.length;
    list = [...fresh.slice().reverse(), ...list].slice(0, 400);
    if (!was) draw();
    else {
      for (const one of fresh) body.prepend(cells(one, true));
      while (body.children.length > 400) body.lastChild.remove();
    }
  });
  load();
  return { update: load, close: stop, wide: true };
}

/** One decision: what each filter left, the scores, and at the side the pod with all its attempts. @param {HTMLElement} main */
function openOne(main) {
  const part = h("div", {});
  main.append(part);
  const load = () => fill(part, () => get(`decisions/${route().id}`), found => {
    const one = found.attempt, why = found.explanation, result = why?.result;
    const differs = one.result === "scheduled" && result?.node && result.node !== one.node;
    const tied = differs && why.table?.nodes.some((/** @type {any} */ each) => each.node === one.node && each.total === why.table.nodes[0].total);
    show($("side"), about(found));
    return [
      h("p", { class: "dim" }, h("a", { href: href("decisions") }, "Decisions"), ` / ${number(one.seq)} · ${clock(one.time)}`),
      h("h1", { class: "lead" }, h("a", { href: href("pod", one.pod) }, one.pod), one.result === "scheduled" ? [" goes to ", h("b", {}, nodeLink(one.node))] : one.result === "unschedulable" ? " fits on no node" : ` is ${one.result}`),
      one.message ? h("p", { class: "dim" }, one.message) : null,
      one.victims.length ? h("div", { class: "verdict" }, h("strong", {}, `Evicts ${counted(one.victims.length, "pod")} on ${one.node}`), one.victims.join(", ")) : null,
      differs ? h("div", { class: "verdict plain" }, h("strong", {}, tied ? "The total was the same on several nodes" : `Computed again, ${result.node} is best`), tied ? "The scheduler chose one of them." : "The page may have seen a change earlier or later than the scheduler.") : null,
      one.observed ? h("p", { class: "dim" }, "This decision was derived from the pod's status; it is explained as bayplan would decide.") : null,
      !why ? h("p", { class: "dim" }, "The pod is no longer in the history, so that the decision cannot be explained.")
        : !result ? h("p", { class: "dim" }, `Computed again, the pod is not evaluated: ${why.reason}`)
          : [funnel(why.funnel, result), scores(why.table), preemption(result), warnings(why.source.warnings)],
    ];
  });
  load();
  return { update: load, close: () => {}, own_side: true };
}

/** The pod of a decision. @param {any} found */
function about(found) {
  const one = found.attempt, why = found.explanation;
  return [
    h("h1", {}, h("a", { href: href("pod", one.pod) }, one.pod)),
    h("div", { class: "sub" }, [found.workload, ...(why ? requested(why) : [])].filter(Boolean).join(" · ")),
    h("div", { class: `verdict ${one.result === "scheduled" ? "good" : "plain"}` }, h("strong", {}, `Waited ${duration(one.waitedSeconds)}`), "from its creation to this decision"),
    h("p", { class: "bar" }, h("a", { class: "button", href: href("cluster", "", { at: Math.max(0, one.seq - 1), node: one.node || null }) }, "Show the cluster at this time")),
    h("h2", {}, "All attempts for this pod"), attempts(found.attempts, false),
    why?.result?.rejections.length ? [h("h2", {}, "Rejected by"), rejections(why.result)] : null,
    waitsFor(why?.result),
  ];
}
