/** Decides what the flow shows: lanes, and row by row the messages, their answers and the time between. Pure. */

import { secondsBetween } from "../format.js";
import { finalReceipt, isEnded, sendingAgent, startedAt } from "../task_words.js";

/** The lane of all senders that are no agents: people, callers of the gateway, Synapse itself. */
export const PEOPLE = "";

const GAP_SECONDS = 60;

/**
 * Returns the lanes and rows of the flow.
 *
 * A row is a message (from its sender's lane to the agent's), an answer (back), a day, or a gap of more than a minute.
 * `bars` of a row names the lanes whose agent was at work then: in the upper half of the row, the lower half or both.
 *
 * @param {object[]} tasks TaskRows, in any order
 * @param {object[]} agents rows of the overview; they name the lanes
 * @returns {{lanes: Array<{key: string, id: string, name: string}>, rows: object[]}}
 */
export function layout(tasks, agents) {
  // An agent that waits for another's answer has a task of its own for it, in which nothing is said.
  const told = tasks.filter((task) => !task.waits_for);
  const byId = new Map();
  for (const task of told) {
    if (!byId.has(task.agent_id)) byId.set(task.agent_id, []);
    byId.get(task.agent_id).push(task);
  }
  const senders = new Map(told.map((task) => [task, senderKey(task, byId, agents)]));
  const lanes = lanesOf(told, senders, agents);
  const place = new Map(lanes.map((lane, index) => [lane.key, index]));
  const rows = withGaps(inOrder(told.flatMap((task) => rowsOf(task, place.get(senders.get(task)), place))));
  addBars(rows, told, place);
  return { lanes, rows };
}

/**
 * Returns the lane of a task's sender. A message names the agent that sent it by an id, which contains a port: it is the
 * agent that runs with this id, else the one that got messages under it at about that time.
 */
function senderKey(task, byId, agents) {
  if (!task.from_agent) return PEOPLE;
  const running = sendingAgent(task, agents);
  if (running) return running.id;
  const sent = Date.parse(task.created_at);
  const away = (other) => Math.abs(Date.parse(other.created_at) - sent);
  const named = byId.get(task.from_agent) ?? [];
  const nearest = named.reduce((best, other) => (best && away(best) <= away(other) ? best : other), null);
  return nearest?.agent ?? task.from_agent;
}

function lanesOf(tasks, senders, agents) {
  const known = new Map(agents.map((agent) => [agent.id, agent]));
  const keys = new Set(tasks.flatMap((task) => [task.agent, senders.get(task)]));
  keys.delete(PEOPLE);
  const lanes = [...keys].map((key) => ({ key, id: known.has(key) ? key : "", name: known.get(key)?.name || key }));
  lanes.sort((one, other) => one.name.localeCompare(other.name) || one.key.localeCompare(other.key));
  return [{ key: PEOPLE, id: "", name: "People" }, ...lanes];
}

function rowsOf(task, sender, place) {
  const agent = place.get(task.agent);
  // An agent's question to a person is a task of the agent's own; nothing was sent to it.
  const isQuestion = !(task.receipts ?? []).some(({ step }) => step === "queued");
  const [from, to] = isQuestion ? [agent, place.get(PEOPLE)] : [sender, agent];
  const rows = [{ kind: "message", key: task.id, at: task.created_at, task, from, to, bars: [] }];
  const ended = finalReceipt(task);
  if (ended && isEnded(task.state)) {
    rows.push({ kind: "answer", key: `${task.id}/answer`, at: ended.at, task, from: to, to: from, bars: [] });
  }
  return rows;
}

function inOrder(rows) {
  const rank = { message: 0, answer: 1 };
  return rows.sort(
    (one, other) =>
      Date.parse(one.at) - Date.parse(other.at) || rank[one.kind] - rank[other.kind] || (one.key < other.key ? -1 : 1),
  );
}

function withGaps(rows) {
  const spaced = [];
  let before = null;
  for (const row of rows) {
    const isNewDay = !before || new Date(before.at).toDateString() !== new Date(row.at).toDateString();
    if (isNewDay) {
      spaced.push({ kind: "day", key: `day/${row.key}`, at: row.at, bars: [] });
    } else if (secondsBetween(before.at, row.at) > GAP_SECONDS) {
      const seconds = secondsBetween(before.at, row.at);
      spaced.push({ kind: "gap", key: `gap/${row.key}`, at: row.at, seconds, bars: [] });
    }
    spaced.push(row);
    before = row;
  }
  return spaced;
}

/** Adds to each row the lanes whose agent worked: from the row after which it began to the row of its answer. */
function addBars(rows, tasks, place) {
  const times = rows.map((row) => Date.parse(row.at));
  const answers = new Map(rows.map((row, index) => [row.key, index]));
  const halves = rows.map(() => new Map());
  const mark = (index, lane, half) => halves[index].set(lane, (halves[index].get(lane) ?? 0) | half);
  for (const task of tasks) {
    const started = startedAt(task);
    if (started === null) continue;
    const lane = place.get(task.agent);
    const first = Math.max(lastNotAfter(times, Date.parse(started)), answers.get(task.id));
    const last = answers.get(`${task.id}/answer`) ?? rows.length;
    if (last <= first) continue;
    mark(first, lane, 2);
    for (let index = first + 1; index < Math.min(last, rows.length); index += 1) mark(index, lane, 3);
    if (last < rows.length) mark(last, lane, 1);
  }
  rows.forEach((row, index) => {
    row.bars = [...halves[index]].map(([lane, half]) => ({ lane, half: ["", "upper", "lower", "whole"][half] }));
  });
}

function lastNotAfter(times, time) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
