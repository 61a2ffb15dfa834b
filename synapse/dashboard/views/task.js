/**
 * Task: what became of this request? The message, the answer while it grows, what was handed over, and the timeline of
 * what happened with the evidence for each step.
 */

import { ago, clock, fill, h, keyed, reveal } from "../dom.js";
import { duration, timeOfDay } from "../format.js";
import { ask } from "../keys.js";
import { needCard } from "../need.js";
import { mark, needsOf } from "../rows.js";
import { agentName, isEnded, isInDoubt, progress, senderName, stepWord, STEPS, taskState } from "../task_words.js";
import { codeBlock, joined, Parts } from "./task_parts.js";
import { timeline } from "./timeline.js";

const RETRY = 1000;
const REFUSALS = new Set([400, 401, 403, 404]);
const WHOLE_ID = 36;
const LONGEST_RAW = 4000;
const DEFAULT_PRIORITY = 3;
/** Needs that say how a task ended: the task itself shows that. */
const ENDINGS = new Set(["failed", "done"]);
const SOURCES = { screen: "as the screen shows it", transcript: "from the agent's transcript", hook: "from the agent's hook" };

export const view = {
  name: "task",
  title: "Task",
  wide: true,
  mount(root, context, params) {
    const task = new TaskView(root, context, params.id);
    return { unmount: () => task.stop() };
  },
};

class TaskView {
  #context;
  #id;
  #task = null;
  #row = null;
  #events = new Map();
  #frame = 0;
  #abort = new AbortController();
  #stream = null;
  #ends = [];
  #parts;
  #seen = "";
  #head = h("header", { class: "task-head" });
  #steps = h("ol", { class: "task-steps", "aria-label": "Receipt" });
  #needs = h("div", { class: "task-needs" });
  #talk = h("div", { class: "task-talk" });
  #timeline = h("ol", { class: "timeline" });
  #facts = h("dl", { class: "facts" });
  #raw = h("details", { class: "task-raw", ontoggle: () => this.#drawRaw() }, h("summary", {}, "Raw JSON"), h("div"));

  constructor(root, context, id) {
    this.#context = context;
    this.#id = id;
    this.#parts = new Parts(context, id);
    fill(root, h("article", { class: "task" }, this.#head, this.#steps,
      h("div", { class: "task-columns" },
        h("div", { class: "task-main" }, this.#needs, this.#talk),
        h("aside", { class: "task-aside" },
          h("section", { "aria-label": "Timeline" }, h("h2", {}, "Timeline"), this.#timeline), this.#facts, this.#raw))));
    const { live } = context;
    this.#ends = [
      live.on("task", ({ task }) => task?.id === this.#task?.id && this.#takeRow(task)),
      live.on("rows", () => this.#schedule()),
      // The page was away: a stream from before may be dead without having said so.
      live.on("connection", ({ state }) => state === "live" && this.#stream?.abort()),
    ];
    // The time since the last event of an open task grows by itself.
    const tick = setInterval(() => this.#task && !isEnded(this.#task.status) && this.#schedule(), 5000);
    this.#ends.push(() => clearInterval(tick));
    this.#run();
  }

  stop() {
    this.#abort.abort();
    this.#parts.close();
    cancelAnimationFrame(this.#frame);
    for (const end of this.#ends) end();
  }

  get #path() {
    return `/dashboard/tasks/${encodeURIComponent(this.#id)}`;
  }

  /** Loads the task and follows it until it ends. */
  async #run() {
    const { signal } = this.#abort;
    while (!signal.aborted) {
      this.#stream = null;
      try {
        if (await this.#isElsewhere()) return;
        await this.#load();
        if (isEnded(this.#task.status)) return;
        this.#stream = new AbortController();
        const either = AbortSignal.any([signal, this.#stream.signal]);
        for await (const event of this.#context.api.stream(`${this.#path}/events`, { signal: either })) this.#receive(event);
        if (isEnded(this.#task.status)) return await this.#load();
      } catch (error) {
        if (signal.aborted) return;
        if (REFUSALS.has(error.status)) return this.#refused(error);
        if (this.#stream?.signal.aborted) continue;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY));
    }
  }

  /** Goes to the task's own address if this one has only the beginning of its id, as people type it. */
  async #isElsewhere() {
    if (this.#id.length >= WHOLE_ID) return false;
    const { task } = await this.#context.api.get(this.#path, { signal: this.#abort.signal });
    if (task.id === this.#id) return false;
    location.replace(`#/tasks/${encodeURIComponent(task.id)}`);
    return true;
  }

  async #load() {
    const { signal } = this.#abort;
    const { api } = this.#context;
    const [{ task, row }, page] = await Promise.all([
      api.get(this.#path, { signal }),
      api.get(`${this.#path}/timeline`, { signal }),
    ]);
    this.#task = task;
    this.#row = row;
    this.#addEvents(page.events);
    // An answer that grew in many pieces has more events than one page.
    for (let after = page.next_after; after; ) {
      const more = await api.get(`${this.#path}/timeline?after=${after}`, { signal });
      this.#addEvents(more.events);
      after = more.next_after;
    }
  }

  #addEvents(events) {
    for (const event of events) this.#events.set(event.seq, event);
    this.#schedule();
  }

  #receive({ id, event, data }) {
    if (!data.task) return;
    const wasEnded = isEnded(this.#task.status);
    this.#task = data.task;
    // The first of a stream is the task as it is; the timeline that was loaded has its events.
    if (event !== "snapshot") this.#events.set(Number(id), { ...data.event, seq: Number(id) });
    if (!wasEnded && isEnded(data.task.status)) this.#context.announce(`The task ${data.task.status}.`);
    this.#schedule();
  }

  #takeRow(row) {
    this.#row = row;
    this.#schedule();
  }

  #refused(error) {
    fill(this.#head, h("div", { class: "empty" },
      h("h2", {}, error.status === 404 ? "There is no such task." : reveal(error.message)),
      error.hint ? h("p", { class: "muted" }, error.hint) : null,
      h("p", {}, h("a", { href: "#/tasks" }, "All tasks"))));
    for (const part of [this.#steps, this.#needs, this.#talk, this.#timeline, this.#facts]) fill(part);
    this.#head.parentElement.classList.add("refused");
  }

  #schedule() {
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#render());
  }

  #render() {
    this.#frame = 0;
    if (!this.#task || this.#abort.signal.aborted) return;
    const row = rowOf(this.#task, this.#row);
    const { rows } = this.#context.live;
    const said = [row.state, row.receipt, row.attention, row.updated_at, row.priority, agentName(row, rows), senderName(row, rows)];
    this.#drawOnce(this.#head, said, () => this.#headOf(row));
    this.#drawOnce(this.#steps, row.receipts, () => stepsOf(row));
    this.#drawNeeds();
    this.#drawTalk(row);
    const until = isEnded(row.state) ? "" : new Date().toISOString();
    keyed(this.#timeline, timeline([...this.#events.values()], until), (one) => `${one.kind}/${one.key}`, () => h("li"), updateEvent);
    this.#drawOnce(this.#facts, [row, this.#task.metadata?.trace], () => factsOf(this.#task, row));
    this.#drawRaw();
    this.#markSeen(row);
  }

  #drawOnce(root, what, draw) {
    const signature = JSON.stringify(what);
    if (root.signature === signature) return;
    root.signature = signature;
    fill(root, ...draw());
  }

  #headOf(row) {
    const { state, word } = taskState(row);
    const { live } = this.#context;
    const agent = live.row(row.agent);
    const to = h("bdi", {}, ...reveal(agentName(row, live.rows)));
    const cancel = h("button", { type: "button", onclick: () => this.#cancel() }, "Cancel the task");
    const changed = isEnded(row.state) ? `took ${duration(took(row))}` : ["changed ", ago(row.updated_at), " ago"];
    return [
      h("div", { class: "task-title" },
        h("h1", {}, mark(state), h("span", { class: "state", "data-state": state }, word), " ",
          h("bdi", {}, ...reveal(senderName(row, live.rows))), " → ",
          agent ? h("a", { href: `#/agents/${encodeURIComponent(agent.id)}` }, to) : to),
        h("p", { class: "muted" }, `sent ${clock(row.created_at)} · `, changed,
          row.priority && row.priority !== DEFAULT_PRIORITY ? ` · priority ${row.priority}` : null,
          ` · `, h("code", {}, this.#id.slice(0, 8)))),
      h("div", { class: "task-actions" }, isEnded(row.state) ? null : this.#context.gate(cancel, "cancel")),
    ];
  }

  async #cancel() {
    const sentence = `Cancel task ${this.#id.slice(0, 8)}?`;
    if (!(await ask(sentence, [h("p", {}, "Its sender is told that it was canceled.")], "Cancel the task"))) return;
    try {
      const { task } = await this.#context.api.post(`${this.#path}/cancel`);
      this.#task = task;
      this.#schedule();
    } catch (error) {
      this.#context.fail(error);
    }
  }

  /** Shows what a person has to decide about this task, as the Inbox does. */
  #drawNeeds() {
    const needs = needsOf(this.#context.live.rows).filter((need) => need.task_id === this.#task.id && !ENDINGS.has(need.kind));
    keyed(this.#needs, needs, (need) => need.id, (need) => needCard(need, this.#context).element);
  }

  #drawTalk(row) {
    const sections = talkOf(this.#task, row, this.#needs.childElementCount > 0);
    const make = () => h("section", { class: "task-said" }, h("h2"), h("div", { class: "task-parts" }));
    keyed(this.#talk, sections, (one) => one.key, make, (element, section) => {
      const [title, body] = element.children;
      element.dataset.kind = section.kind;
      const note = section.note ? h("span", { class: "muted" }, " ", ...reveal(section.note)) : null;
      this.#drawOnce(title, [section.title, section.note], () => [...reveal(section.title), note]);
      this.#parts.show(body, section.parts, section.name);
    });
  }

  #drawRaw() {
    if (!this.#raw.open || !this.#task) return;
    const cut = (_key, value) => {
      const isLong = typeof value === "string" && value.length > LONGEST_RAW;
      return isLong ? `${value.slice(0, LONGEST_RAW)}… (${value.length} characters)` : value;
    };
    const text = JSON.stringify(this.#task, cut, 2);
    this.#drawOnce(this.#raw.lastElementChild, text, () => [codeBlock(text, "json")]);
  }

  /** Whoever has the ended task on the screen has seen it. */
  #markSeen(row) {
    if (!isEnded(row.state) || this.#seen === row.updated_at || document.visibilityState !== "visible" || !row.agent) return;
    this.#seen = row.updated_at;
    // The agent may have left: that does not matter to the reader.
    this.#context.seen(row.agent, row.updated_at).catch(() => {});
  }
}

/** Returns the TaskRow with what the task, which its own stream keeps newest, says of the same. */
function rowOf(task, row) {
  const { metadata = {} } = task;
  return {
    ...row,
    state: task.status,
    receipt: metadata.receipt ?? "",
    receipts: metadata.receipts ?? [],
    reason: metadata.reason ?? "",
    note: metadata.note ?? "",
    attention: metadata.attention ?? "",
    priority: metadata.priority,
    created_at: task.created_at,
    updated_at: task.updated_at,
  };
}

function took(row) {
  const end = row.receipts.at(-1)?.at ?? row.updated_at;
  return (Date.parse(end) - Date.parse(row.created_at)) / 1000;
}

function stepsOf(row) {
  const { reached, failure } = progress(row);
  if (!row.receipts.length) return [];
  const last = (step) => row.receipts.findLast((receipt) => receipt.step === step);
  // A script is not typed: a step that was passed without a receipt does not belong to this message.
  const passed = STEPS.slice(0, reached).filter(last);
  const shown = failure ? [...passed, failure] : [...passed, ...STEPS.slice(reached)];
  return shown.map((step) => {
    const receipt = STEPS.indexOf(step) < reached || step === failure ? last(step) : null;
    const state = step === failure ? (failure === "canceled" ? "away" : "failed") : step === "answered" ? "done" : "working";
    const isDoubt = isInDoubt(row) && step === "typed";
    const sign = isDoubt ? "!" : step === failure ? "×" : receipt ? "●" : "○";
    return h("li", { class: receipt ? "reached" : "ahead", "data-state": isDoubt ? "in_doubt" : state },
      h("span", { class: "task-step-mark", "aria-hidden": "true" }, sign),
      h("span", { class: "task-step-word" }, stepWord(step)),
      receipt ? whenOf(receipt) : h("span", { class: "sr-only" }, "not yet"));
  });
}

function whenOf({ at, source }) {
  const from = source ? [h("span", { class: "task-step-dot" }, " · "), h("span", { class: "task-step-source" }, ...reveal(source))] : null;
  return h("span", { class: "task-step-when" }, timeOfDay(at), from);
}

/** Returns what was said, in order: the messages, an open question, the answer, then what else was handed over. */
function talkOf(task, row, hasNeeds) {
  const messages = (task.history ?? [task.message]).map((message, index) => {
    const isAgent = message.role === "agent";
    const title = isAgent ? "Question" : index === 0 ? "Message" : "Message, later";
    return section(`message/${index}`, isAgent ? "agent" : "message", title, message.parts ?? []);
  });
  const isAnswer = (artifact) => artifact.name === "answer";
  const artifacts = task.artifacts ?? [];
  const made = [...artifacts.filter(isAnswer), ...artifacts.filter((one) => !isAnswer(one))].map((artifact) => {
    const title = isAnswer(artifact) ? "Answer" : artifact.name || "Artifact";
    const note = isAnswer(artifact) ? answerNote(artifact) : artifact.description;
    return section(`artifact/${artifact.artifact_id}`, "answer", title, joined(artifact.parts ?? []), note, artifact.name);
  });
  return [...messages, ...openQuestion(row, hasNeeds), ...made, ...ending(row, made.length > 0)];
}

/** Returns the question as the task has it, where no card of a need shows it. */
function openQuestion(row, hasNeeds) {
  const isAsking = row.state === "input_required" && !hasNeeds && row.note;
  return isAsking ? [section("asks", "agent", "It asks", [{ type: "text", text: row.note }])] : [];
}

/** Returns why the task ended without an answer, or that there is none yet. */
function ending(row, hasAnswer) {
  if (row.state === "failed" || row.state === "canceled") {
    const why = [row.reason.replaceAll("_", " "), row.note].filter(Boolean).join(": ") || "no reason was given";
    return [section("end", "failed", row.state === "failed" ? "Failed" : "Canceled", [{ type: "text", text: why }])];
  }
  const isWaiting = !hasAnswer && !isEnded(row.state) && row.state !== "input_required";
  return isWaiting ? [section("waits", "waits", "No answer yet", [], row.note)] : [];
}

function section(key, kind, title, parts, note = "", name = "") {
  return { key, kind, title, parts, note, name };
}

function answerNote({ metadata = {} }) {
  const source = SOURCES[metadata.source] ?? (metadata.inferred ? "inferred" : "");
  return [metadata.partial ? "still growing" : "", source].filter(Boolean).join(", ");
}

function updateEvent(element, row) {
  const signature = JSON.stringify(row);
  if (element.signature === signature) return;
  element.signature = signature;
  if (row.kind === "gap") {
    element.className = "timeline-gap";
    fill(element, h("span", {}, `${duration(row.seconds)} without an event${row.open ? ", until now" : ""}`));
    return;
  }
  element.className = "timeline-event";
  fill(element,
    h("time", { datetime: row.at, title: row.at }, timeOfDay(row.at)),
    h("span", { class: "timeline-mark", "data-state": row.state || "ready", "aria-hidden": "true" }, row.isStep ? "●" : "·"),
    h("span", { class: "timeline-what" },
      h("span", { class: row.isStep ? "timeline-step" : null }, ...reveal(row.what)),
      row.source ? h("span", { class: "timeline-source" }, " ", ...reveal(row.source)) : null,
      row.evidence ? h("span", { class: "timeline-evidence", dir: "auto" }, ...reveal(row.evidence)) : null));
}

function factsOf(task, row) {
  const trace = task.metadata?.trace?.traceparent?.split?.("-") ?? [];
  const link = (hash, words) => h("a", { href: hash }, h("code", {}, ...reveal(words)));
  const facts = [
    ["Task", h("code", {}, task.id)],
    task.context_id ? ["Context", link(`#/tasks?context=${encodeURIComponent(task.context_id)}`, task.context_id)] : null,
    row.parent_id ? ["Part of", link(`#/tasks/${encodeURIComponent(row.parent_id)}`, row.parent_id.slice(0, 8))] : null,
    trace[1] ? ["Trace", h("code", {}, ...reveal(trace[1]))] : null,
    trace[2] ? ["Span", h("code", {}, ...reveal(trace[2]))] : null,
    ["Reply", row.reply_expected ? "the sender waits for it" : "not expected"],
  ];
  return facts.filter(Boolean).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
}
