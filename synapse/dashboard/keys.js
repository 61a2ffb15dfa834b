/** Keys of the page. Every one does what a link or a button of the page does, too. */

import { h } from "./dom.js";

const PLACES = { i: "#/inbox", a: "#/agents", f: "#/flow", t: "#/tasks" };
const CONFIRMED = "synapse.confirmed-keys";
const SECOND_KEY = 1500; // how long `g` waits for its second key, in milliseconds

const HELP = [
  [["j", "k"], "next, previous"],
  [["Enter"], "open"],
  [["a", "d"], "allow, deny the chosen question"],
  [["s"], "send a message"],
  [["/"], "search all tasks"],
  [["g i", "g a", "g f", "g t"], "go to Inbox, Agents, Flow, Tasks"],
  [["Esc"], "leave a field or a dialog"],
  [["Ctrl ]"], "leave a terminal"],
  [["?"], "this help"],
];

/**
 * Listens to the page's keys. A key of the shown view goes first.
 *
 * @param {{navigate: (hash: string) => void, viewKeys: () => Object<string, Function>, items: () => HTMLElement[],
 *   search: () => void, send: () => void, help: () => void}} page
 */
export function listenToKeys(page) {
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && event.target.matches?.("input, textarea, select")) event.target.blur();
    if (takesText(event.target)) return;
    const act = actionOf(event, performance.now() < going ? "g" : "");
    going = event.key === "g" ? performance.now() + SECOND_KEY : 0;
    if (!act) return;
    event.preventDefault();
    act();
  });

  function actionOf(event, prefix) {
    const { key } = event;
    if (prefix === "g" && PLACES[key]) return () => page.navigate(PLACES[key]);
    const own = page.viewKeys()[key];
    if (own) return own;
    switch (key) {
      case "j": return () => step(page.items(), 1);
      case "k": return () => step(page.items(), -1);
      case "s": return page.send;
      case "/": return page.search;
      case "?": return page.help;
      default: return null;
    }
  }
}

function takesText(element) {
  return element.matches?.("input, textarea, select, [contenteditable]");
}

function step(items, by) {
  if (items.length === 0) return;
  const at = items.findIndex((item) => item === document.activeElement || item.contains(document.activeElement));
  const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(Math.max(at + by, 0), items.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

/**
 * Asks before a key decides something for the first time in this browser, and returns whether it may.
 *
 * @param {string} key
 * @param {string} sentence what the key would do now
 * @param {...Node} what the whole subject of the decision
 * @returns {Promise<boolean>}
 */
export async function confirmKey(key, sentence, ...what) {
  const confirmed = localStorage.getItem(CONFIRMED) ?? "";
  if (confirmed.includes(key)) return true;
  const once = h("p", { class: "muted" },
    "The key ", h("kbd", {}, key), " asks this once; from then on it acts at once.");
  const yes = await ask(sentence, [...what, once], "Yes");
  if (yes) localStorage.setItem(CONFIRMED, confirmed + key);
  return yes;
}

/**
 * Asks a question in a dialog and returns whether the person agreed.
 *
 * @param {string} sentence
 * @param {any[]} body
 * @param {string} yes the label of the button that agrees
 * @returns {Promise<boolean>}
 */
export function ask(sentence, body, yes) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-label": sentence }, h("h2", {}, sentence), ...body,
      h("div", { class: "actions" },
        h("button", { class: "primary", onclick: () => dialog.close("yes") }, yes),
        h("button", { onclick: () => dialog.close() }, "Not now")));
    showDialog(dialog, () => resolve(dialog.returnValue === "yes"));
  });
}

/**
 * Shows the help, with a button that ends the session.
 *
 * @param {() => void} signOut
 */
export function showHelp(signOut) {
  const dialog = h("dialog", { "aria-label": "Keys" }, h("h2", {}, "Keys"),
    h("dl", { class: "keys" }, HELP.map(([keys, what]) => [
      h("dt", {}, keys.map((key, number) => [number ? " " : null, key.split(" ").map((one) => h("kbd", {}, one))])),
      h("dd", {}, what),
    ])),
    h("div", { class: "actions" },
      h("button", { onclick: () => dialog.close() }, "Close"),
      h("button", { class: "quiet", onclick: () => { dialog.close(); signOut(); } }, "Sign out of this browser")));
  showDialog(dialog, () => {});
}

function showDialog(dialog, onClose) {
  dialog.addEventListener("close", () => {
    dialog.remove();
    onClose();
  });
  document.body.append(dialog);
  dialog.showModal();
}
