// Writes, where the server allows them: tried first, then asked, then done.

import { post } from "./api.js";
import { announce, h, show } from "./dom.js";
import { route, state } from "./state.js";

/** @type {Record<string, [string, (name: string) => string, string]>} */
const ACTIONS = {
  cordon: ["Cordon", name => `Cordon ${name}?`, "No new pods will be scheduled on this node. Its pods stay."],
  uncordon: ["Uncordon", name => `Uncordon ${name}?`, "New pods can be scheduled on this node again."],
  evict: ["Evict", name => `Evict ${name}?`, "The pod is deleted gracefully, if its disruption budgets allow it. A controller may create another one, and the scheduler chooses its node."],
};

/** A button, if this may be written now. @param {string} action @param {string} name @param {string} [uid] */
export const writeButton = (action, name, uid = "") => state.info.writes.includes(action) && route().at === null
  ? h("button", { type: "button", "data-write": action, onclick: () => ask(action, name, uid) }, `${ACTIONS[action][0]}…`) : null;

/** @param {string} action @param {string} name @param {string} uid */
async function ask(action, name, uid) {
  const [title, question, about] = ACTIONS[action];
  const answer = h("p", { role: "status" }, "Asking the API server whether it would be accepted…");
  const go = h("button", { type: "button", class: "main", disabled: true }, title);
  const dialog = h("dialog", { "aria-label": question(name), onclose: () => dialog.remove() },
    h("h1", {}, question(name)), h("p", {}, about), answer,
    h("p", { class: "bar" }, go, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
  document.body.append(dialog);
  dialog.showModal();
  /** @param {boolean} dryRun */
  const send = async dryRun => {
    try {
      return await post("writes", { action, name, uid, dryRun });
    } catch (error) {
      show(answer, h("span", { class: "alert" }, /** @type {Error} */ (error).message));
      go.disabled = true;
      return null;
    }
  };
  if (await send(true)) {
    show(answer, "The API server would accept it.");
    go.disabled = false;
    go.focus();
  }
  go.addEventListener("click", async () => {
    go.disabled = true;
    const done = await send(false);
    if (!done) return;
    announce(`Done: ${done.done}`);
    dialog.close();
    dispatchEvent(new CustomEvent("written"));
  });
}
