/**
 * Flow: who told whom what, and did it arrive? A lane per agent, time downwards, an arrow per message and per answer.
 *
 * Each row is a link to its task, so Tab, `j`/`k`, Enter and screen readers reach it; on a phone the same rows are a
 * list. The newest row is at the bottom and stays in sight until the person scrolls up.
 */

import { fill, h, keyed, reveal, svg } from "../dom.js";
import { counted, dayOf, duration, timeOfDay } from "../format.js";
import { mark } from "../rows.js";
import { isEnded, isWaiting, progress, progressWords, stepWord, STEPS, taskState } from "../task_words.js";
import { layout, PEOPLE } from "./flow_layout.js";

const PAGE = 100;
const MOST = 1000; // a page that stays open for days begins anew with the newest
const TIME_WIDTH = 80;
const NARROWEST_LANE = 136;
const WIDEST_LANE = 340;
const ROW = 40;
const LINE = 30; // where the arrow lies in its row; the text stands above it
const NEAR_END = 48;
const DOTS = 76; // the room of a message's dots, with the gap at the lane of its agent
const LEAST_LABEL = 160; // a label with less room in sight is replaced by the names and the text

export const view = {
  name: "flow",
  title: "Flow",
  wide: true,
  mount(root, context) {
    const flow = new Flow(root, context);
    return { unmount: () => flow.stop(), keys: { j: () => flow.step(1), k: () => flow.step(-1) } };
  },
};

class Flow {
  #context;
  #tasks = new Map();
  #older = "";
  #isFollowing = true;
  #unseen = 0;
  #placedAt = 0;
  #frame = 0;
  #ends = [];
  #abort = new AbortController();
  #lanes = h("div", { class: "flow-lanes" });
  #list = h("ol", { class: "flow-rows", "aria-label": "Messages, oldest first" });
  #olderButton = h("button", { class: "flow-older", hidden: true, onclick: () => this.#loadOlder() }, "Older messages");
  #newest = h("button", { class: "flow-newest", hidden: true, onclick: () => this.#follow() });
  #empty = h("div", { class: "empty", hidden: true });
  #card = h("div", { class: "flow-card", hidden: true, "aria-hidden": "true" });
  #canvas = h("div", { class: "flow-canvas" }, this.#lanes, this.#olderButton, this.#list);
  #scroller = h("div", { class: "flow-scroller", onscroll: () => this.#onScroll() }, this.#canvas);
  #view = h("section", { class: "flow" }, h("div", { class: "view-head" }, h("h1", {}, "Flow"), legend()),
    this.#empty, this.#scroller, this.#newest, this.#card);

  constructor(root, context) {
    this.#context = context;
    fill(root, this.#view);
    const { live } = context;
    this.#ends = [
      live.on("task", ({ task }) => this.#receive(task)),
      live.on("rows", () => this.#schedule()),
      live.on("resync", () => this.#load()),
    ];
    const resized = new ResizeObserver(() => this.#schedule());
    resized.observe(this.#scroller);
    this.#ends.push(() => resized.disconnect());
    for (const [name, show] of [["mouseover", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) {
      this.#list.addEventListener(name, (event) => (show ? this.#showCard(event.target) : this.#hideCard()));
    }
    this.#view.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#hideCard();
    });
    this.#load();
  }

  stop() {
    this.#abort.abort();
    cancelAnimationFrame(this.#frame);
    for (const end of this.#ends) end();
  }

  /** Moves the focus to the next or previous row; the first step is to the newest, where the eye is. */
  step(by) {
    const links = [...this.#list.querySelectorAll("[data-item]")];
    const at = links.indexOf(document.activeElement);
    const link = at < 0 ? links.at(-1) : links[Math.min(Math.max(at + by, 0), links.length - 1)];
    link?.focus();
    link?.scrollIntoView({ block: "nearest" });
  }

  async #load() {
    try {
      const page = await this.#page("");
      this.#tasks = new Map();
      for (const task of page.tasks) this.#take(task);
      this.#older = page.next_cursor ?? "";
      this.#render();
    } catch (error) {
      this.#fail(error);
    }
  }

  async #loadOlder() {
    this.#olderButton.disabled = true;
    try {
      const page = await this.#page(this.#older);
      for (const task of page.tasks) this.#take(task);
      this.#older = page.next_cursor ?? "";
      const { scrollHeight, scrollTop } = this.#scroller;
      this.#render();
      // What was read before stays where it was.
      this.#scroller.scrollTop = scrollTop + this.#scroller.scrollHeight - scrollHeight;
    } catch (error) {
      this.#fail(error);
    } finally {
      this.#olderButton.disabled = false;
    }
  }

  #page(cursor) {
    const query = new URLSearchParams({ limit: String(PAGE) });
    if (cursor) query.set("cursor", cursor);
    return this.#context.api.get(`/dashboard/tasks?${query}`, { signal: this.#abort.signal });
  }

  #fail(error) {
    if (!this.#abort.signal.aborted) this.#context.fail(error);
  }

  #receive(task) {
    if (!task) return;
    if (!this.#tasks.has(task.id) && !this.#isFollowing) this.#unseen += 1;
    this.#take(task);
    if (this.#tasks.size > MOST && this.#isFollowing) this.#load();
    else this.#schedule();
  }

  /** Keeps the task, unless a later event has already brought a newer one. */
  #take(task) {
    const known = this.#tasks.get(task.id);
    if (!known || Date.parse(known.updated_at) <= Date.parse(task.updated_at)) this.#tasks.set(task.id, task);
  }

  #schedule() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => this.#render());
  }

  #render() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const { lanes, rows } = layout([...this.#tasks.values()], this.#context.live.rows);
    const room = this.#scroller.clientWidth - TIME_WIDTH;
    // Even, so that the middle of a lane is a whole pixel.
    const width = 2 * Math.floor(Math.min(WIDEST_LANE, Math.max(NARROWEST_LANE, room / lanes.length)) / 2);
    this.#canvas.style.setProperty("--lane", `${width}px`);
    this.#canvas.style.setProperty("--lanes", String(lanes.length));
    this.#drawLanes(lanes);
    const shape = { lanes, width };
    keyed(this.#list, rows, (row) => row.key, makeRow, (element, row) => updateRow(element, row, shape));
    this.#olderButton.hidden = !this.#older;
    this.#scroller.hidden = rows.length === 0;
    this.#empty.hidden = rows.length > 0;
    if (rows.length === 0) fill(this.#empty, ...emptyState());
    this.#placeLabels();
    if (this.#isFollowing) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#showNewest();
  }

  /** Keeps every text in sight, however far the lanes are scrolled sideways. */
  #placeLabels() {
    const { scrollLeft, clientWidth } = this.#scroller;
    this.#placedAt = scrollLeft;
    for (const element of this.#list.children) placeLabel(element, scrollLeft, scrollLeft + clientWidth - TIME_WIDTH);
  }

  #drawLanes(lanes) {
    const states = new Map(this.#context.live.rows.map((row) => [row.id, row.state]));
    const head = (lane) => {
      if (lane.key === PEOPLE) return h("span", { class: "flow-lane" }, h("bdi", {}, lane.name));
      const state = states.get(lane.key);
      const name = h("bdi", { title: lane.name }, ...reveal(lane.name));
      if (!lane.id) return h("span", { class: "flow-lane gone", title: `${lane.name} is not running` }, name);
      return h("a", { class: "flow-lane", href: `#/agents/${encodeURIComponent(lane.id)}` }, mark(state), name);
    };
    const signature = JSON.stringify(lanes.map((lane) => [lane, states.get(lane.key)]));
    if (this.#lanes.dataset.shown === signature) return;
    this.#lanes.dataset.shown = signature;
    fill(this.#lanes, h("span", { class: "flow-corner" }), ...lanes.map(head));
  }

  #onScroll() {
    const { scrollHeight, scrollTop, scrollLeft, clientHeight } = this.#scroller;
    if (scrollLeft !== this.#placedAt) this.#placeLabels();
    this.#isFollowing = scrollHeight - scrollTop - clientHeight < NEAR_END;
    if (this.#isFollowing) this.#unseen = 0;
    this.#hideCard();
    this.#showNewest();
  }

  #follow() {
    this.#isFollowing = true;
    this.#unseen = 0;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#showNewest();
  }

  #showNewest() {
    this.#newest.hidden = this.#isFollowing;
    fill(this.#newest, this.#unseen ? `↓ ${counted(this.#unseen, "new message")}` : "↓ Newest");
  }

  #showCard(target) {
    const element = target.closest?.(".flow-row");
    if (!element?.row?.task) return this.#hideCard();
    fill(this.#card, ...cardOf(element.row, element.shape));
    this.#card.hidden = false;
    const frame = this.#view.getBoundingClientRect();
    const row = element.getBoundingClientRect();
    const card = this.#card.getBoundingClientRect();
    const arrow = element.querySelector(".flow-label").getBoundingClientRect();
    const isBelow = row.bottom + card.height + 8 < frame.bottom;
    const top = isBelow ? row.bottom + 4 : row.top - card.height - 4;
    const left = Math.min(Math.max(arrow.left, frame.left + 8), frame.right - card.width - 8);
    this.#card.style.top = `${Math.max(0, top - frame.top)}px`;
    this.#card.style.left = `${left - frame.left}px`;
  }

  #hideCard() {
    this.#card.hidden = true;
  }
}

function legend() {
  return h(
    "p", { class: "flow-legend" },
    h("span", { class: "flow-dots", "data-state": "done", "aria-hidden": "true" }, "●●●●●"),
    ` ${STEPS.map(stepWord).join(" · ")}`,
    h("span", { class: "flow-legend-wait" }, svg("svg", { width: 28, height: 8, "aria-hidden": "true", class: "flow-waiting" },
      svg("line", { x1: 0, y1: 4, x2: 28, y2: 4 })), " no proof yet that it was taken"),
  );
}

function emptyState() {
  return [
    h("h2", {}, "Nobody has sent a message yet."),
    h("p", { class: "muted" }, "Messages between people and agents appear here as arrows, while they travel."),
    h("pre", {}, 'synapse send claude "Which tests are slow?"'),
  ];
}

function makeRow(row) {
  return h("li", { class: `flow-row flow-${row.kind}` });
}

/** Draws the row anew if anything that it shows has changed. */
function updateRow(element, row, shape) {
  element.row = row;
  element.shape = shape;
  const { task } = row;
  const signature = JSON.stringify([
    shape.width, shape.lanes.length, row.from, row.to, row.bars, row.seconds, row.from !== undefined && namesOf(row, shape),
    task && [task.state, task.receipts?.length, task.receipt, task.reason, task.attention, task.text, task.answer, task.asks],
  ]);
  if (element.signature === signature) return;
  element.signature = signature;
  element.place = "";
  const picture = svg("svg", {
    class: "flow-arrow", width: shape.lanes.length * shape.width, height: ROW, "aria-hidden": "true", focusable: "false",
  }, ...row.bars.map((bar) => barOf(bar, shape)));
  if (row.kind === "day") return fill(element, picture, h("span", { class: "flow-between" }, dayOf(row.at)));
  if (row.kind === "gap") return fill(element, picture, h("span", { class: "flow-between" }, duration(row.seconds)));
  const look = lookOf(row);
  picture.append(arrowOf(row, shape, look));
  fill(element, picture, linkOf(row, shape, look));
}

/** Puts the text of a row where its arrow is in sight; a row whose arrow is not shows names and text instead. */
function placeLabel(element, left, right) {
  const { row, shape } = element;
  if (!row.task) return;
  const [first, last] = reachOf(row, shape);
  const start = Math.max(first, left + 12);
  const end = Math.min(last, right - 12);
  const needed = LEAST_LABEL + (row.kind === "message" ? DOTS : 0);
  const isOut = end - start < Math.min(needed, 0.8 * (last - first));
  const place = isOut ? "out" : `${start} ${end}`;
  if (element.place === place) return;
  element.place = place;
  element.classList.toggle("flow-out", isOut);
  const label = element.querySelector(".flow-label");
  label.style.left = isOut ? "" : `${start}px`;
  label.style.width = isOut ? "" : `${end - start}px`;
  const far = label.querySelector(".flow-far");
  const [before, after] = [first < left && !isOut, last > right && !isOut];
  far.className = `flow-far${before ? " before" : after ? " after" : ""}`;
  fill(far, before || after ? reveal(nameAt(row, shape, before)) : null);
}

/** Returns where the text of a row may stand: above its arrow, with the dots beyond its head; or beside its loop. */
function reachOf({ from, to, kind }, { width, lanes }) {
  if (from === to) return [(from + 0.5) * width + 32, Math.min((from + 1.9) * width, lanes.length * width - 8)];
  const [first, last] = [(Math.min(from, to) + 0.5) * width + 12, (Math.max(from, to) + 0.5) * width - 12];
  if (kind === "answer") return [first, last];
  return to > from ? [first, last + DOTS] : [first - DOTS, last];
}

/** Returns the name at the left or the right end of an arrow. */
function nameAt(row, shape, isLeft) {
  const [sender, receiver] = namesOf(row, shape);
  return (row.from < row.to) === isLeft ? sender : receiver;
}

/** Returns how a message or an answer is drawn: its colour, dots, words, and whether its arrow is dashed. */
function lookOf({ kind, task }) {
  if (kind === "answer") {
    const { failure } = progress(task);
    const state = taskState(task).state;
    const text = failure ? failureText(task) : task.answer || "(no text)";
    return { state, colour: state, dots: failure ? "×" : "", text, waiting: false, words: failure ? taskState(task).word : "answer" };
  }
  const { reached, failure } = progress(task);
  const state = taskState(task).state;
  const rest = failure ? "×" : isEnded(task.state) ? "" : "○".repeat(STEPS.length - reached);
  const hint = { in_doubt: "!", asks: "?" }[state] ?? "";
  return {
    state,
    // A message that has its answer is history: its arrow steps back behind those under way.
    colour: state === "done" ? "ready" : state,
    dots: `${hint}${"●".repeat(reached)}${rest}`,
    text: task.text || (task.files ? counted(task.files, "file") : "(empty)"),
    waiting: isWaiting(task),
    words: progressWords(task),
  };
}

function failureText(task) {
  const why = task.note || task.reason?.replaceAll("_", " ") || "";
  return [taskState(task).word, why].filter(Boolean).join(": ");
}

function barOf({ lane, half }, { width }) {
  const top = half === "lower" ? LINE : 0;
  const bottom = half === "upper" ? LINE : ROW;
  return svg("rect", { class: "flow-bar", x: (lane + 0.5) * width - 3, y: top, width: 6, height: bottom - top });
}

function arrowOf({ kind, from, to }, { width }, look) {
  const start = (from + 0.5) * width;
  const end = (to + 0.5) * width;
  const classes = `flow-line${look.waiting ? " flow-waiting" : ""}${kind === "answer" ? " flow-back" : ""}`;
  const group = svg("g", { class: classes, "data-state": look.colour });
  if (from === to) {
    group.append(svg("path", { class: "flow-loop", d: `M ${start + 4} ${LINE - 14} h 22 v 14 h -18` }), headOf(start + 4, -1, kind));
    return group;
  }
  const way = Math.sign(end - start);
  group.append(svg("circle", { cx: start, cy: LINE, r: 3 }));
  const stop = end - (kind === "answer" ? 4 : 10) * way;
  group.append(svg("line", { x1: start + 3 * way, y1: LINE, x2: stop, y2: LINE }), headOf(end - 4 * way, way, kind));
  return group;
}

/** Returns the head of an arrow: filled for a message, open for an answer. */
function headOf(x, way, kind) {
  if (kind === "answer") return svg("path", { class: "flow-open-head", d: `M ${x - 7 * way} ${LINE - 5} L ${x} ${LINE} l ${-7 * way} 5` });
  return svg("path", { class: "flow-head", d: `M ${x} ${LINE} l ${-8 * way} -4.5 v 9 z` });
}

function linkOf(row, shape, look) {
  const { from, to, task, at, kind } = row;
  const [sender, receiver] = namesOf(row, shape);
  const isLeftwards = to < from;
  const words = `${timeOfDay(at)}, ${sender} ${kind === "answer" ? "answers" : "to"} ${receiver}: ${look.text} — ${look.words}`;
  const isOutside = kind === "message" && from === 0 && task.from && task.from !== "user";
  const prefix = isOutside ? [h("span", { class: "flow-from" }, ...reveal(task.from), ": ")] : kind === "answer" ? ["↳ "] : [];
  return h(
    "a", { class: "flow-link", href: `#/tasks/${encodeURIComponent(task.id)}`, "data-item": true, "aria-label": words },
    h("time", { class: "flow-time", datetime: at }, timeOfDay(at)),
    h("span", { class: "flow-brief" }, h("bdi", {}, ...reveal(sender)), " → ", h("bdi", {}, ...reveal(receiver))),
    h(
      "span", { class: `flow-label${isLeftwards ? " leftwards" : ""}${from === to ? " loop" : ""}` },
      h("bdi", { class: "flow-text", dir: "auto" }, ...prefix, ...reveal(look.text)),
      look.dots ? h("span", { class: "flow-dots", "data-state": look.state }, look.dots) : null,
      h("span", { class: "flow-far" }),
    ),
  );
}

function namesOf({ from, to, task, kind }, { lanes }) {
  // The lane is all people's; the name is this one's. An answer goes back to the name that sent the message.
  const name = (index) => (index === 0 ? task?.from || "a person" : lanes[index].name);
  return kind === "answer" && to === 0 ? [lanes[from].name, name(0)] : [name(from), to === 0 ? "a person" : lanes[to].name];
}

function cardOf(row, shape) {
  const { task, kind } = row;
  const [sender, receiver] = namesOf(row, shape);
  const { state, word } = taskState(task);
  const text = kind === "answer" ? lookOf(row).text : task.text;
  const steps = (task.receipts ?? []).map(({ step, at, source }) =>
    h("li", {}, h("span", {}, stepWord(step)), h("time", {}, timeOfDay(at)), h("span", { class: "muted" }, ...reveal(source))),
  );
  return [
    h("p", { class: "flow-card-head" }, mark(state), h("span", { class: "state", "data-state": state }, word),
      h("span", {}, h("bdi", {}, ...reveal(sender)), " → ", h("bdi", {}, ...reveal(receiver)))),
    h("p", { class: "flow-card-text", dir: "auto" }, ...reveal(text || "(empty)")),
    task.attention ? h("p", { class: "flow-card-note" }, ...reveal(task.attention)) : null,
    steps.length ? h("ol", { class: "flow-card-steps" }, ...steps) : null,
  ].filter(Boolean);
}
