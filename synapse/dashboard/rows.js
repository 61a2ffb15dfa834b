/** How an agent's row is shown: the same marks, words and order everywhere. A state is always a word and a mark. */

import { ago, h, reveal } from "./dom.js";

/** The mark of each state. */
export const MARKS = {
  asks: "?", in_doubt: "!", failed: "×", done: "●", working: "◐", queued: "…", starting: "◌", ready: "○", away: "–",
};

/**
 * Returns the word of a state or of a receipt step: `in_doubt` is "in doubt".
 *
 * @param {string} state
 */
export function word(state) {
  return state.replaceAll("_", " ");
}

/**
 * Returns the address of an agent's page.
 *
 * @param {string} id
 */
export function agentAddress(id) {
  return `#/agents/${encodeURIComponent(id)}`;
}

/**
 * Returns the address of a task's page.
 *
 * @param {string} id
 */
export function taskAddress(id) {
  return `#/tasks/${encodeURIComponent(id)}`;
}

/**
 * Returns the address of one need in the Inbox.
 *
 * @param {string} id
 */
export function needAddress(id) {
  return `#/inbox?need=${encodeURIComponent(id)}`;
}

/**
 * Returns a link to a task, which shows its short id.
 *
 * @param {string} id
 */
export function taskLink(id) {
  return h("a", { class: "link mono", href: taskAddress(id) }, id.slice(0, 8));
}

/**
 * Returns the mark of a state; screen readers get the word that stands beside it instead.
 *
 * @param {string} state
 */
export function mark(state) {
  return h("span", { class: "mark", "data-state": state, "aria-hidden": "true" }, MARKS[state] ?? "·");
}

/**
 * Returns the state as its word, with how long it lasts.
 *
 * @param {{state: string, since: string}} row
 */
export function stateLabel(row) {
  return h("span", { class: "state", "data-state": row.state }, word(row.state), " ", ago(row.since));
}

/**
 * Returns the parts of an agent's row: mark, name, state and since, the line of why, the queue.
 *
 * @param {object} row
 */
export function rowParts(row) {
  const queue = row.queue ? h("span", { class: "row-queue", title: `${row.queue} queued` },
    h("span", { "aria-hidden": "true" }, `+${row.queue}`), h("span", { class: "sr-only" }, ` ${row.queue} queued`)) : null;
  return [
    mark(row.state),
    h("span", { class: "row-name" }, reveal(row.name), queue),
    stateLabel(row),
    row.why ? h("span", { class: "row-why" }, reveal(row.why)) : null,
  ];
}

/**
 * Returns a sender as people call it: an agent that runs by its name, all others as they are.
 *
 * @param {string} sender
 * @param {object[]} rows
 */
export function nameOf(sender, rows) {
  return rows.find((row) => row.agent_id === sender)?.name ?? sender;
}

/**
 * Returns every need of the rows, in the order of the rows.
 *
 * @param {object[]} rows
 */
export function needsOf(rows) {
  return rows.flatMap((row) => row.needs ?? []);
}

/**
 * Returns the state that a need of this kind puts its agent into.
 *
 * @param {string} kind
 */
export function stateOfNeed(kind) {
  return ["in_doubt", "failed", "done"].includes(kind) ? kind : "asks";
}
