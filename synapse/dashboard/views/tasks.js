/**
 * Tasks: where is that thing from yesterday? A search over messages and answers, filters, and pages by cursor.
 *
 * The address keeps the search. The list is in the gateway's order, last changed first. Rows that are shown change in
 * place when their task does; others are only counted, in a button that loads them, so that nothing moves under the
 * pointer.
 */

import { fill, h, keyed, reveal } from "../dom.js";
import { count, counted, shortTime } from "../format.js";
import { mark } from "../rows.js";
import { agentName, progressWords, senderName, STATE_FILTERS, taskState } from "../task_words.js";

const PAGE = 50;
const TYPING_PAUSE = 250;
const FILTERS = ["search", "agent", "state", "from", "context"];

export const view = {
  name: "tasks",
  title: "Tasks",
  mount(root, context, params) {
    const tasks = new Tasks(root, context);
    tasks.show(params.query);
    return {
      update: ({ query }) => tasks.show(query),
      unmount: () => tasks.stop(),
      keys: { "/": () => tasks.focusSearch() },
    };
  },
};

class Tasks {
  #context;
  #query = {};
  #rows = [];
  #cursors = [""]; // where each page begins, up to the one shown
  #next = "";
  #total = null;
  #newer = new Set();
  #timer = 0;
  #request = null;
  #ends = [];
  #search = h("input", {
    type: "search", class: "tasks-search", placeholder: "Search messages and answers", "aria-label": "Search messages and answers",
    autocomplete: "off", spellcheck: "false", oninput: () => this.#typed(), maxlength: 500,
  });
  #agent = h("select", { "aria-label": "Agent", onchange: () => this.#filter() });
  #state = h("select", { "aria-label": "State", onchange: () => this.#filter() },
    h("option", { value: "" }, "any state"), ...STATE_FILTERS.map(([value, word]) => h("option", { value }, word)));
  #from = h("input", { type: "text", class: "tasks-from", placeholder: "from anybody", "aria-label": "Sender", autocomplete: "off",
    spellcheck: "false", oninput: () => this.#typed(), maxlength: 200 });
  #clear = h("button", { type: "button", hidden: true, onclick: () => this.#context.navigate("#/tasks") }, "Clear");
  #summary = h("span", { class: "tasks-summary", role: "status" });
  #newerButton = h("button", { class: "tasks-newer", hidden: true, onclick: () => this.#first() });
  #list = h("ol", { class: "tasks-list" });
  #empty = h("div", { class: "empty", hidden: true });
  #back = h("button", { onclick: () => this.#page(-1) }, "← Newer");
  #on = h("button", { onclick: () => this.#page(1) }, "Older →");
  #pages = h("nav", { class: "tasks-pages", "aria-label": "Pages" }, this.#back, this.#on);

  constructor(root, context) {
    this.#context = context;
    const form = h("form", { class: "tasks-form", role: "search", onsubmit: (event) => { event.preventDefault(); this.#filter(); } },
      this.#search, h("div", { class: "tasks-filters" }, this.#agent, this.#state, this.#from, this.#clear));
    fill(root, h("section", { class: "tasks" }, h("h1", { class: "sr-only" }, "Tasks"), form,
      h("div", { class: "tasks-head" }, this.#summary, this.#newerButton), this.#list, this.#empty, this.#pages));
    const { live } = context;
    this.#ends = [
      live.on("task", ({ task }) => this.#receive(task)),
      live.on("rows", () => this.#onAgents()),
      live.on("resync", () => this.#load()),
    ];
  }

  /** Shows what the address asks for. */
  show(query) {
    this.#query = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
    this.#cursors = [""];
    this.#offerAgents();
    // A field that is being typed in is ahead of the address.
    for (const [field, name] of [[this.#search, "search"], [this.#from, "from"]]) {
      if (document.activeElement !== field) field.value = this.#query[name];
    }
    this.#state.value = this.#query.state;
    this.#clear.hidden = FILTERS.every((name) => !this.#query[name]);
    if (this.#clear.hidden) this.#search.value = this.#from.value = "";
    this.#load();
  }

  stop() {
    clearTimeout(this.#timer);
    this.#request?.abort();
    for (const end of this.#ends) end();
  }

  focusSearch() {
    this.#search.focus();
    this.#search.select();
  }

  #onAgents() {
    this.#offerAgents();
    if (this.#rows.length) this.#render();
  }

  #offerAgents() {
    const chosen = this.#query.agent ?? "";
    const names = new Set(this.#context.live.rows.map((row) => row.id));
    if (chosen) names.add(chosen);
    const sorted = [...names].sort((one, other) => one.localeCompare(other));
    const signature = JSON.stringify([sorted, chosen]);
    if (this.#agent.dataset.shown === signature) return;
    this.#agent.dataset.shown = signature;
    fill(this.#agent, h("option", { value: "" }, "any agent"), ...sorted.map((name) => h("option", { value: name }, name)));
    this.#agent.value = chosen;
  }

  #typed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#filter(), TYPING_PAUSE);
  }

  #filter() {
    clearTimeout(this.#timer);
    const chosen = {
      ...this.#query,
      search: this.#search.value.trim(),
      agent: this.#agent.value,
      state: this.#state.value,
      from: this.#from.value.trim(),
    };
    const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
    const address = query.size ? `#/tasks?${query}` : "#/tasks";
    if (address === location.hash) this.#load();
    else this.#context.navigate(address);
  }

  #first() {
    this.#cursors = [""];
    this.#load();
  }

  #page(step) {
    if (step > 0) this.#cursors.push(this.#next);
    else this.#cursors.pop();
    this.#load().then(() => this.#list.querySelector("a")?.focus());
  }

  async #load() {
    this.#request?.abort();
    const request = (this.#request = new AbortController());
    const query = new URLSearchParams(Object.entries(this.#query).filter(([, value]) => value));
    query.set("limit", String(PAGE));
    if (this.#cursors.at(-1)) query.set("cursor", this.#cursors.at(-1));
    this.#list.setAttribute("aria-busy", "true");
    try {
      const page = await this.#context.api.get(`/dashboard/tasks?${query}`, { signal: request.signal });
      this.#rows = page.tasks;
      this.#next = page.next_cursor ?? "";
      this.#total = page.total ?? null;
      this.#newer.clear();
      this.#render();
    } catch (error) {
      if (!request.signal.aborted) this.#context.fail(error);
    } finally {
      if (this.#request === request) this.#list.removeAttribute("aria-busy");
    }
  }

  #receive(task) {
    if (!task) return;
    const index = this.#rows.findIndex((row) => row.id === task.id);
    if (index >= 0) {
      if (Date.parse(this.#rows[index].updated_at) > Date.parse(task.updated_at)) return;
      this.#rows[index] = task;
      return this.#render();
    }
    if (this.#cursors.length > 1 || !matches(task, this.#query)) return;
    this.#newer.add(task.id);
    // An empty list has nothing that could jump.
    if (!this.#rows.length) this.#load();
    else this.#render();
  }

  #render() {
    const now = new Date();
    keyed(this.#list, this.#rows, (row) => row.id, makeRow, (element, row) => updateRow(element, row, now, this.#context.live.rows));
    this.#newerButton.hidden = this.#newer.size === 0;
    fill(this.#newerButton, `↑ ${counted(this.#newer.size, "other task")} changed`);
    fill(this.#summary, this.#summaryText());
    this.#list.hidden = this.#rows.length === 0;
    this.#empty.hidden = this.#rows.length > 0;
    if (!this.#rows.length) fill(this.#empty, ...emptyState(this.#query));
    this.#back.disabled = this.#cursors.length === 1;
    this.#on.disabled = !this.#next;
    this.#pages.hidden = this.#back.disabled && this.#on.disabled;
  }

  #summaryText() {
    if (!this.#rows.length) return "";
    const first = (this.#cursors.length - 1) * PAGE + 1;
    const last = first + this.#rows.length - 1;
    if (this.#total === null) return `${count(first)}–${count(last)}`;
    const all = counted(this.#total, "task");
    return last === this.#total && first === 1 ? all : `${count(first)}–${count(last)} of ${all}`;
  }
}

/** Decides whether a task that has just come would be found; of a search only the gateway knows for sure. */
function matches(task, { search, agent, state, from, context }) {
  if (agent && task.agent !== agent) return false;
  if (state && task.state !== state) return false;
  if (from && task.from !== from && task.from_agent !== from) return false;
  if (context && task.context_id !== context) return false;
  const text = `${task.text} ${task.answer}`.toLowerCase();
  return !search || search.toLowerCase().split(/\s+/).every((word) => text.includes(word.replace(/[^\p{L}\p{N}_]/gu, "")));
}

function makeRow() {
  return h("li", { class: "tasks-row" });
}

function updateRow(element, row, now, agents) {
  const [from, to] = [senderName(row, agents), agentName(row, agents)];
  const signature = JSON.stringify([row, from, to, now.toDateString()]);
  if (element.signature === signature) return;
  element.signature = signature;
  const { state, word } = taskState(row);
  const hadFocus = element.contains(document.activeElement);
  const link = h(
    "a", { class: "tasks-link", href: `#/tasks/${encodeURIComponent(row.id)}`, "data-item": true },
    h("span", { class: "tasks-state" }, mark(state), h("span", { class: "state", "data-state": state }, word)),
    h("span", { class: "tasks-who" }, ...(row.waits_for ? waitingWords(row, to, agents)
      : [h("bdi", {}, ...reveal(from)), " → ", h("bdi", { class: "tasks-agent" }, ...reveal(to))])),
    h("span", { class: "tasks-texts" },
      h("bdi", { class: "tasks-text", dir: "auto" }, ...reveal(row.text || (row.files ? counted(row.files, "file") : "(empty)"))),
      answerLine(row)),
    h("time", { class: "tasks-time", datetime: row.updated_at, title: `sent ${shortTime(row.created_at, now)}` },
      shortTime(row.updated_at, now)),
  );
  fill(element, link);
  if (hadFocus) link.focus();
}

/** Returns who waits for whom: an agent that asked another one has a task of its own for the answer. */
function waitingWords(row, waiter, agents) {
  const asked = agents.find((agent) => agent.agent_id === row.waits_for)?.name ?? row.waits_for;
  return [h("bdi", { class: "tasks-agent" }, ...reveal(waiter)), " waits for ", h("bdi", {}, ...reveal(asked))];
}

function answerLine(row) {
  const ended = progressWords(row);
  if (row.state === "failed" || row.state === "canceled") {
    const why = [ended, row.note].filter(Boolean).join(" · ");
    return h("bdi", { class: "tasks-answer", dir: "auto" }, ...reveal(why));
  }
  if (row.answer) return h("bdi", { class: "tasks-answer", dir: "auto" }, "↳ ", ...reveal(row.answer));
  if (row.attention || row.note) return h("bdi", { class: "tasks-answer", dir: "auto" }, ...reveal(row.attention || row.note));
  return null;
}

function emptyState(query) {
  if (FILTERS.some((name) => query[name])) {
    const what = query.search ? [`Nothing found for “`, ...reveal(query.search), `”.`] : ["No task matches these filters."];
    return [
      h("h2", {}, ...what),
      h("p", { class: "muted" }, "A search finds whole words and their beginnings, in messages and in answers."),
    ];
  }
  return [
    h("h2", {}, "No tasks yet."),
    h("p", { class: "muted" }, "Every message to an agent becomes a task, and stays here with its answer."),
    h("pre", {}, 'synapse send claude "Which tests are slow?"'),
  ];
}
