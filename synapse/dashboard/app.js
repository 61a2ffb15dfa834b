/**
 * The page: signs in, keeps the frame around the views (header, list of agents, banner), routes, handles keys.
 *
 * A view is a module in views/ that exports
 *
 *     export const view = { name, title, wide?, mount(root, context, params) → handle };
 *
 * `title` heads the page's title. `wide` takes the whole width where the list of agents would leave little.
 * `params` is {id, query}: the address `#/tasks/ID?search=x` has the id "ID" (else "") and a URLSearchParams.
 * `handle` is { unmount(), update?(params), keys? }: `unmount` ends all listeners and requests of the view; `update` is
 * called when the address changes within the same view (without it, the view is mounted anew); `keys` maps a key such
 * as "a" to what it does in this view. Elements with the attribute `data-item` are what `j` and `k` step through.
 *
 * `context` is what a view may use:
 *     api, live, session               see api.js, live.js; session = {id, name, actions, max_body_bytes, …}
 *     navigate(hash), openTask(id), openAgent(id)
 *     announce(text)                   says it to screen readers
 *     notify(text), fail(error)        a line at the bottom of the page that goes by itself; an error stays
 *     can(action)                      whether this session may, and the page is connected
 *     gate(element, action)            keeps the element disabled while `can(action)` is false; returns the element
 *     seen(agentId)                    marks the agent's finished tasks as seen
 *     notices                          browser notifications, see notices.js
 *
 * Address → view: #/inbox, #/agents, #/agents/ID, #/flow, #/tasks, #/tasks/ID, #/figures, #/send.
 */

import { api } from "./api.js";
import { clock, fill, h, keyed, refreshTimes } from "./dom.js";
import { listenToKeys, showHelp } from "./keys.js";
import { Live } from "./live.js";
import { BrowserNotices } from "./notices.js";
import { agentAddress, needAddress, needsOf, rowParts, stateOfNeed, taskAddress, word } from "./rows.js";

const VIEWS = {
  inbox: () => import("./views/inbox.js"),
  agents: () => import("./views/agents.js"),
  agent: () => import("./views/agent.js"),
  flow: () => import("./views/flow.js"),
  tasks: () => import("./views/tasks.js"),
  task: () => import("./views/task.js"),
  figures: () => import("./views/figures.js"),
  send: () => import("./views/send.js"),
};
const TABS = [["inbox", "Inbox"], ["agents", "Agents"], ["flow", "Flow"], ["tasks", "Tasks"], ["figures", "Figures"]];
const ONE_OF = { agents: "agent", tasks: "task" };
const THEMES = { auto: "light", light: "dark", dark: "auto" };
const THEME = "synapse.theme";
const NOTE_SHOWN = 6000; // milliseconds

applyTheme(localStorage.getItem(THEME) ?? "auto");
await signIn();

/** Takes the code of a one-time link, or the token of an earlier visit, and opens the page or says what is missing. */
async function signIn() {
  const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  // Out of the address and the history before anything else: the code is worth a session.
  if (code) history.replaceState(null, "", location.pathname);
  if (!code && !api.token) return showSignedOut("This browser is not signed in.");
  api.onSessionEnd = () => {};
  try {
    const answer = code ? await api.post("/dashboard/session", { code }) : await api.get("/dashboard/session");
    if (code) api.token = answer.token;
    openPage(answer.session);
  } catch (error) {
    if (error.status === 0) return showUnreachable();
    if (code) return showSignedOut("This link is not valid any more: it works once, for two minutes.", error);
    api.token = "";
    showSignedOut("Your session has ended.", error);
  }
}

function showSignedOut(sentence, error) {
  document.title = "Synapse";
  document.documentElement.removeAttribute("data-connection");
  fill(document.body, h("main", { class: "sign-in" },
    h("h1", { class: "brand" }, h("img", { src: "/assets/icon.svg", alt: "" }), "Synapse"),
    h("p", { role: "alert" }, sentence, error?.message ? h("span", { class: "muted" }, ` (${error.message})`) : null),
    h("p", {}, "In a terminal of this user, run"), h("pre", {}, "synapse dashboard"),
    h("p", {}, "It opens this page with a link that works once.")));
  window.addEventListener("hashchange", () => location.reload(), { once: true });
  window.addEventListener("storage", (event) => event.newValue && api.token && location.reload());
}

function showUnreachable() {
  fill(document.body, h("main", { class: "sign-in" }, h("h1", {}, "Synapse"),
    h("p", { role: "alert" }, "The gateway cannot be reached. Trying again…")));
  setTimeout(signIn, 2000);
}

/** Builds the frame and starts the live connection and the router. */
function openPage(session) {
  const live = new Live(api);
  const frame = buildFrame();
  let shown = { name: "", handle: null, keys: {} };
  let known = null;

  const context = {
    api, live, session,
    navigate: (hash) => { location.hash = hash; },
    openTask: (id) => context.navigate(taskAddress(id)),
    openAgent: (id) => context.navigate(agentAddress(id)),
    announce: (text) => { frame.voice.textContent = text; },
    notify: (text) => addNote(frame.notes, text, false),
    fail: (error) => addNote(frame.notes, error.hint ? `${error.message} (${error.hint})` : error.message, true),
    can: (action) => live.isLive && session.actions.includes(action),
    gate: (element, action) => {
      element.dataset.action = action;
      setEnabled(element);
      return element;
    },
    seen: (agentId, until) => api.post(`/dashboard/agents/${encodeURIComponent(agentId)}/seen`, { until }),
    notices: new BrowserNotices(live, (need) => context.navigate(needAddress(need.id))),
  };

  const setEnabled = (element) => {
    const may = session.actions.includes(element.dataset.action);
    element.disabled = !may || !live.isLive || element.hasAttribute("aria-busy");
    element.title = may ? "" : `this session may not ${element.dataset.action}`;
  };

  const onRows = () => {
    const needs = needsOf(live.rows);
    if (known !== null) for (const need of needs) {
      if (!known.has(need.id)) context.announce(`${need.name} ${word(stateOfNeed(need.kind))}: ${need.title}`);
    }
    known = new Set(needs.map((need) => need.id));
    frame.showRows(live.rows, needs.length);
    setTitle();
  };
  const setTitle = () => {
    const count = known?.size ? `(${known.size}) ` : "";
    document.title = count + (shown.title ? `${shown.title} · Synapse` : "Synapse");
  };

  live.on("rows", onRows);
  live.on("connection", () => {
    frame.showConnection(live.connection);
    for (const element of document.querySelectorAll("[data-action]")) setEnabled(element);
    context.announce(live.isLive ? "Connected." : "Not connected.");
  });

  const end = (error) => {
    shown.handle?.unmount();
    shown = { name: "", handle: null, keys: {} };
    window.removeEventListener("hashchange", route);
    api.token = "";
    showSignedOut("Your session has ended.", error);
  };
  live.on("ended", end);

  async function route() {
    if (location.hash.startsWith("#code=")) return location.reload();
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [place, ...rest] = path.split("/");
    const id = decoded(rest.join("/"));
    const name = id && ONE_OF[place] ? ONE_OF[place] : place;
    if (!VIEWS[name]) return location.replace("#/inbox");
    const params = { id, query: new URLSearchParams(query) };
    frame.showPlace(place, id);
    frame.search.value = place === "tasks" ? (params.query.get("search") ?? "") : "";
    if (shown.name === name && shown.handle?.update) return shown.handle.update(params);
    await show(name, params);
  }

  async function show(name, params) {
    const first = shown.name === "";
    shown.handle?.unmount();
    shown = { name, handle: null, keys: {} };
    const mine = shown;
    let view;
    try {
      ({ view } = await VIEWS[name]());
    } catch (error) {
      fill(frame.main, h("p", { class: "empty" }, `This view could not be loaded: ${error.message}`));
      return;
    }
    if (shown !== mine) return; // another address was chosen meanwhile
    frame.page.toggleAttribute("data-wide", view.wide === true);
    fill(frame.main);
    frame.main.scrollTop = 0;
    frame.main.setAttribute("aria-label", view.title);
    shown.title = view.title;
    shown.handle = view.mount(frame.main, context, params);
    setTitle();
    if (!first && !frame.main.contains(document.activeElement)) frame.main.focus({ preventScroll: true });
  }

  listenToKeys({
    navigate: context.navigate,
    viewKeys: () => shown.handle?.keys ?? {},
    items: () => {
      const inView = [...frame.main.querySelectorAll("[data-item]")];
      return inView.length ? inView : [...frame.side.querySelectorAll("[data-item]")];
    },
    search: () => (frame.search.checkVisibility() ? frame.search.focus() : context.navigate("#/tasks")),
    send: () => context.navigate(shown.name === "agent" ? `#/send?to=${location.hash.split("/")[2]}` : "#/send"),
    help: () => showHelp(signOut),
  });
  frame.help.addEventListener("click", () => showHelp(signOut));
  frame.search.form.addEventListener("submit", (event) => {
    event.preventDefault();
    context.navigate(`#/tasks?search=${encodeURIComponent(frame.search.value)}`);
  });

  async function signOut() {
    await api.delete("/dashboard/session").catch(() => {}); // an ended session cannot be ended: the same to a person
    location.reload();
    api.token = "";
  }

  window.addEventListener("hashchange", route);
  // While nobody knows whether a state still lasts, its time stands still.
  setInterval(() => live.isLive && refreshTimes(), 1000);
  frame.showConnection(live.connection);
  live.start();
  route();
}

/** Makes the header, the list of agents and the place of the views. */
function buildFrame() {
  const counts = { inbox: h("span", { class: "count" }), agents: h("span", { class: "count" }) };
  const tabs = TABS.map(([place, label]) => h("a", { href: `#/${place}`, "data-place": place }, label, counts[place]));
  const sendTab = h("a", { href: "#/send", "data-place": "send" }, "Send");
  const nav = h("nav", { class: "tabs", "aria-label": "Views" }, tabs, sendTab);
  const connection = h("span", { class: "connection", role: "status" });
  const search = h("input", {
    type: "search", placeholder: "Search tasks", "aria-label": "Search tasks", "aria-keyshortcuts": "/",
  });
  const theme = h("button", { class: "icon quiet theme" });
  const help = h("button", {
    class: "icon quiet", "aria-label": "Keys and help", title: "Keys and help", "aria-keyshortcuts": "?",
  }, "?");
  const banner = h("div", { class: "banner", role: "alert", hidden: true });
  const list = h("div");
  const none = h("p", { class: "muted", hidden: true }, "No agent runs.");
  const side = h("nav", { class: "side", "aria-label": "Agents" }, list, none);
  const main = h("main", { id: "main", tabindex: "-1" });
  const page = h("div", { class: "page" }, side, main);
  const notes = h("div", { class: "notes" });
  const voice = h("div", { class: "sr-only", "aria-live": "polite" });
  const icon = h("img", { src: "/assets/icon.svg", alt: "" });
  const skip = (event) => {
    event.preventDefault(); // the address names the view, not a place in it
    main.focus();
  };
  const top = h("header", { class: "top" },
    h("a", { class: "brand", href: "#/inbox", "aria-label": "Synapse: Inbox" }, icon, h("span", {}, "Synapse")),
    h("div", { class: "tools" }, connection, h("form", { role: "search" }, search), theme, help));
  fill(document.body, h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to the view"),
    top, banner, page, notes, voice);

  // On a phone the tabs stand below everything, where the thumb is.
  const phone = window.matchMedia("(max-width: 719px)");
  const place = () => (phone.matches ? page.after(nav) : top.firstElementChild.after(nav));
  phone.addEventListener("change", place);
  place();

  const showTheme = () => {
    const now = localStorage.getItem(THEME) ?? "auto";
    theme.textContent = { auto: "◐", light: "☀", dark: "☾" }[now];
    theme.title = `Theme: ${now}`;
    theme.setAttribute("aria-label", `Theme: ${now}. Change to ${THEMES[now]}.`);
  };
  theme.addEventListener("click", () => {
    const next = THEMES[localStorage.getItem(THEME) ?? "auto"];
    localStorage.setItem(THEME, next);
    applyTheme(next);
    showTheme();
  });
  showTheme();

  let openAgent = "";
  const showRow = (element, row) => {
    element.dataset.state = row.state;
    if (row.id === openAgent) element.setAttribute("aria-current", "page");
    else element.removeAttribute("aria-current");
    const said = JSON.stringify([row.name, row.state, row.since, row.why, row.queue]);
    if (element.dataset.said === said) return;
    element.dataset.said = said;
    fill(element, rowParts(row));
  };

  return {
    main, page, side, notes, voice, search, help,
    showRows(rows, needs) {
      counts.inbox.textContent = needs || "";
      counts.inbox.className = "count needs";
      counts.agents.textContent = rows.length || "";
      const make = (row) => h("a", { class: "row", href: agentAddress(row.id), "data-item": true });
      keyed(list, rows, (row) => row.id, make, showRow);
      none.hidden = rows.length > 0;
    },
    showPlace(placeName, id) {
      openAgent = placeName === "agents" ? id : "";
      for (const tab of [...tabs, sendTab]) {
        if (tab.dataset.place === placeName) tab.setAttribute("aria-current", "page");
        else tab.removeAttribute("aria-current");
      }
      for (const element of list.children) {
        if (element.dataset.key === openAgent) element.setAttribute("aria-current", "page");
        else element.removeAttribute("aria-current");
      }
    },
    showConnection({ state, since }) {
      document.documentElement.dataset.connection = state;
      connection.textContent = { live: "live", connecting: "connecting" }[state] ?? "not connected";
      banner.hidden = state === "live" || state === "connecting";
      if (banner.hidden) return;
      banner.textContent = `Not connected since ${clock(since)}. What you see is what was true then.`;
    },
  };
}

function addNote(notes, text, isError) {
  const role = isError ? "alert" : "status";
  const note = h("div", { class: isError ? "note error" : "note", role }, h("span", {}, text),
    h("button", { class: "quiet", "aria-label": "Close this note", onclick: () => note.remove() }, "×"));
  notes.append(note);
  if (!isError) setTimeout(() => note.remove(), NOTE_SHOWN);
}

/** Returns the decoded part of an address; what cannot be decoded is taken as it is, and names nothing. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
}
