/**
 * One need of a person, whole: what is asked or happened, in which folder, for whom, and every way to settle it.
 *
 * A decision is never shown before the gateway has confirmed it. The command stands above the buttons, complete, so
 * nobody reaches Allow without having it on the screen.
 */

import { ago, fill, h, oddities, reveal } from "./dom.js";
import { ask } from "./keys.js";
import { agentAddress, mark, nameOf, stateOfNeed, taskLink, word } from "./rows.js";

const KINDS = { in_doubt: "a message in doubt", held: "messages are held", failed: "a failure", done: "an answer" };

const DOUBTS = [
  ["delivered", "It arrived",
    "The agent has the message, or works on it. Nothing is typed again, and Synapse waits for the answer."],
  ["retry", "Type it again",
    "Only if you see on its screen that the message is not there: otherwise it gets it twice."],
  ["fail", "Give it up", "The task fails, and its sender is told so. Nothing is typed."],
];

/**
 * Returns the card of a need, and what the keys `a` and `d` do with it.
 *
 * @param {object} need
 * @param {object} context see app.js
 * @param {{atAgent?: boolean}} [options] `atAgent`: the card stands on the page of its agent
 * @returns {{element: HTMLElement, allow: (() => void)|null, deny: (() => void)|null, settled: boolean,
 *   end: (text: string) => void}} `settled` once this card has sent a decision; `end` turns the card into a line that
 *   says how the need was settled elsewhere
 */
export function needCard(need, context, { atAgent = false } = {}) {
  const { api, live } = context;
  const state = stateOfNeed(need.kind);
  const where = `/dashboard/${need.task_id ? "tasks" : "agents"}/${encodeURIComponent(need.task_id ?? need.agent)}`;
  const element = h("article", {
    class: "need", "data-state": state, "data-item": true, tabindex: "-1",
    "aria-label": `${need.name} ${word(state)}: ${need.title}`,
    onkeydown: (event) => {
      if (event.key === "Enter" && event.target === element) context.openAgent(need.agent);
    },
  });

  async function settle(path, body, done) {
    const buttons = [...element.querySelectorAll("[data-action]")];
    setBusy(buttons, true); // until the gateway shows what came of it
    card.settled = true;
    try {
      await api.post(path, body);
      if (done) context.notify(`${done}: ${need.name} · ${need.title}`);
    } catch (error) {
      card.settled = false;
      setBusy(buttons, false);
      if (error.status !== 409) return context.fail(error);
      const how = error.answeredBy ? `was answered by ${error.answeredBy}` : `is not open any more: ${error.message}`;
      if (element.isConnected) end(how);
      else context.notify(`${need.name}: “${need.title}” ${how}`);
    }
  }

  function setBusy(buttons, isBusy) {
    for (const button of buttons) {
      button.toggleAttribute("aria-busy", isBusy);
      context.gate(button, button.dataset.action);
    }
  }

  function answerButton(label, body, done, className = "") {
    const answer = { ...body, question_id: need.question_id };
    const send = () => settle(`${where}/answer`, answer, done);
    return context.gate(h("button", { class: className, onclick: send }, label), "approve");
  }

  const can = new Set(need.can);
  const allow = can.has("allow") ? answerButton("Allow", { verdict: "allow" }, "Allowed", "primary decide") : null;
  const deny = can.has("deny") ? answerButton("Deny", { verdict: "deny" }, "Denied", "danger decide") : null;

  function end(sentence) {
    element.classList.add("gone");
    element.removeAttribute("data-item");
    element.setAttribute("role", "status");
    fill(element, h("div", { class: "need-head" },
      h("span", {}, h("strong", {}, need.name), ": “", reveal(need.title), "” ", sentence),
      h("button", { class: "quiet end", "aria-label": "Close this line", onclick: () => element.remove() }, "×")));
  }

  const subject = h("div", { class: "need-body" },
    subjectOf(need),
    factsOf(need, live),
    need.hint ? h("p", { class: "prose" }, reveal(need.hint)) : null,
    allow || deny ? h("div", { class: "actions verdict" }, allow, deny) : null,
    optionsOf(need, can, answerButton),
    can.has("text") && need.question_id ? textAnswer(need, where, settle, context) : null,
    can.has("resolve") ? doubtOf(need, settle, context) : null,
    can.has("seen") ? h("div", { class: "actions verdict" }, seenButton(need, settle, context)) : null,
    footOf(need, can, settle, context));
  const head = h("div", { class: "need-head" }, mark(state), h("strong", {}, need.name),
    h("span", { class: "state", "data-state": state }, word(state)),
    h("span", { class: "state" }, ago(need.asked_at)),
    h("span", { class: "muted" }, KINDS[need.kind] ?? word(need.kind),
      need.source ? `, known from its ${need.source}` : null),
    atAgent ? null : h("a", { class: "button quiet end", href: agentAddress(need.agent) },
      can.has("attach") ? "Open terminal" : "Open agent"));
  element.append(head, subject);
  const card = { element, allow: press(allow), deny: press(deny), settled: false, end };
  return card;

  /** Returns what a key does: press the button if it is on the screen, and otherwise bring it there. */
  function press(button) {
    return button && (() => {
      const { top, bottom } = button.getBoundingClientRect();
      if (top >= 0 && bottom <= window.innerHeight) button.click();
      else button.scrollIntoView({ block: "center" });
    });
  }
}

/**
 * Returns what a need is about, whole: its title, the command, and a warning if it has characters that deceive.
 *
 * @param {object} need
 * @returns {HTMLElement[]}
 */
export function subjectOf(need) {
  // The title of an answer is its first line.
  const [first, ...rest] = need.detail.trim().split("\n");
  const isRepeated = need.kind === "done" && rest.length > 0 && first.trimEnd() === need.title;
  const title = isRepeated ? null : h("h2", { class: "need-title" }, reveal(need.title));
  return [title, detailOf(need), oddWarning(need)].filter(Boolean);
}

/** Returns the whole command, diff, message or answer. It wraps and is never cut. */
function detailOf(need) {
  if (!need.detail || need.detail === need.title) return null;
  if (need.kind === "done" || need.kind === "failed") return h("div", { class: "prose" }, reveal(need.detail));
  const isDiff = /^@@ |^[+-]{3} /m.test(need.detail);
  if (!isDiff) return h("pre", { class: "command" }, reveal(need.detail));
  return h("pre", { class: "command" }, need.detail.split("\n").map((line) => {
    const change = /^(\+\+\+|---) /.test(line) ? "" : { "+": "added", "-": "removed" }[line[0]];
    return change ? h("span", { class: change }, reveal(line)) : [...reveal(line), "\n"];
  }));
}

function oddWarning(need) {
  const count = oddities(`${need.title}\n${need.detail}`);
  if (count === 0) return null;
  return h("p", { class: "warning", role: "note" }, count === 1
    ? "One character is invisible or imitates another; it is marked."
    : `${count} characters are invisible or imitate others; they are marked.`);
}

function factsOf(need, live) {
  const facts = [];
  if (need.folder) facts.push(["in", h("code", {}, need.folder)]);
  const text = live.row(need.agent)?.task?.id === need.task_id ? live.row(need.agent).task.text : "";
  if (need.task_id) {
    const hasEnded = need.kind === "done" || need.kind === "failed";
    const work = text ? h("span", { class: "prose" }, ": “", reveal(text), "”") : null;
    const source = [taskLink(need.task_id), need.from ? ` from ${nameOf(need.from, live.rows)}` : null, work];
    facts.push(hasEnded ? ["task", source] : ["asked by", ["task ", source]]);
  } else if (need.question_id) facts.push(["asked by", `${need.name} itself, for no task`]);
  if (facts.length === 0) return null;
  return h("dl", { class: "facts" }, facts.map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

/** Returns the options that Allow and Deny do not choose already. */
function optionsOf(need, can, answerButton) {
  if (!can.has("choose")) return null;
  const first = (effect) => need.options.find((option) => option.effect === effect);
  const allowing = first("allow") ?? first("allow_always");
  const covered = new Set([can.has("allow") && allowing, can.has("deny") && first("deny")]);
  const rest = need.options.filter((option) => !covered.has(option));
  if (rest.length === 0) return null;
  return h("div", { class: "options" },
    covered.size > 1 ? h("span", { class: "muted" }, "or, in its own words:") : null,
    rest.map(({ key, label }) => {
      const words = [h("span", { class: "key" }, key), h("span", {}, reveal(label))];
      return answerButton(words, { option: key }, `Chose “${label}”`);
    }));
}

function textAnswer(need, where, settle, context) {
  const label = `Your answer to ${need.name}`;
  const field = h("textarea", { rows: "2", "aria-label": label, placeholder: "Your own answer" });
  const button = h("button", { type: "submit" }, "Answer");
  return h("form", {
    class: "own-answer",
    onsubmit: (event) => {
      event.preventDefault();
      if (!field.value.trim()) return field.focus();
      settle(`${where}/answer`, { text: field.value, question_id: need.question_id }, "Answered");
    },
  }, field, h("div", { class: "actions" }, context.gate(button, "approve")));
}

function doubtOf(need, settle, context) {
  const path = `/dashboard/tasks/${encodeURIComponent(need.task_id)}/resolve`;
  return h("div", { class: "options" },
    h("p", {}, "The message was typed, but nothing proves that the agent took it. ",
      "Look at its terminal, then say what you see:"),
    DOUBTS.map(([verdict, label, meaning]) => {
      const button = h("button", { onclick: () => settle(path, { verdict, asked_at: need.asked_at }, label) }, label);
      return h("div", { class: "choice" }, context.gate(button, "approve"), h("span", { class: "muted" }, meaning));
    }));
}

function seenButton(need, settle, context) {
  const path = `/dashboard/agents/${encodeURIComponent(need.agent)}/seen`;
  const markSeen = () => settle(path, { until: need.asked_at }, "");
  return context.gate(h("button", { class: "decide", onclick: markSeen }, "Seen"), "read");
}

/** Returns the foot of a card: what to type in a terminal instead, and the task's cancellation. */
function footOf(need, can, settle, context) {
  const command = need.next ? h("span", {}, "In a terminal: ", h("code", {}, need.next)) : null;
  if (!can.has("cancel")) return command && h("div", { class: "need-foot" }, command);
  const path = `/dashboard/tasks/${encodeURIComponent(need.task_id)}/cancel`;
  const cancel = async () => {
    const sentence = `Cancel task ${need.task_id.slice(0, 8)} of ${need.name}?`;
    const told = h("p", {}, "Its sender is told that it was canceled.");
    if (await ask(sentence, [told], "Cancel the task")) settle(path, {}, "Canceled");
  };
  const button = h("button", { class: "quiet", onclick: cancel }, "Cancel the task");
  return h("div", { class: "need-foot" }, command, context.gate(button, "cancel"));
}

/**
 * Returns how a need that is gone was settled, from its task: "was allowed by key.phone (Yes)". An empty text if its
 * task does not say.
 *
 * @param {object} need
 * @param {{get: Function}} api
 */
export async function settledBy(need, api) {
  if (!need.task_id || !need.question_id) return "";
  const { task } = await api.get(`/dashboard/tasks/${encodeURIComponent(need.task_id)}`);
  const answered = task.metadata?.answered;
  if (!answered || answered.question !== need.title) return "";
  return `was answered by ${answered.by === "person" ? "a person" : answered.by}: ${answered.choice}`;
}
