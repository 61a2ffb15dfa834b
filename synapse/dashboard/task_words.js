/** The words and marks of a task: how far its message has come, and how it ended. Pure; the words of `synapse top`. */

/** The steps of a receipt that a message goes through, in order. */
export const STEPS = ["queued", "typed", "submitted", "turn_started", "answered"];

const STEP_WORDS = {
  queued: "queued",
  typed: "typed",
  submitted: "submitted",
  turn_started: "started",
  answered: "answered",
  failed: "failed",
  canceled: "canceled",
  expired: "expired",
};

const FINAL_STEPS = new Set(["answered", "failed", "canceled", "expired"]);

/** The states by which a list of tasks can be filtered, as the API names them, with their words. */
export const STATE_FILTERS = [
  ["submitted", "queued"],
  ["working", "working"],
  ["input_required", "asks"],
  ["completed", "answered"],
  ["failed", "failed"],
  ["canceled", "canceled"],
];

const STATES = {
  submitted: { state: "queued", mark: "…", word: "queued" },
  working: { state: "working", mark: "◐", word: "working" },
  input_required: { state: "asks", mark: "?", word: "asks" },
  completed: { state: "done", mark: "●", word: "answered" },
  failed: { state: "failed", mark: "×", word: "failed" },
  canceled: { state: "away", mark: "–", word: "canceled" },
};

/**
 * Returns the word of a receipt's step.
 * @param {string} step
 */
export function stepWord(step) {
  return STEP_WORDS[step] ?? step;
}

/**
 * Returns how a TaskRow's state is shown: the state of the colour, the mark and the word.
 * @returns {{state: string, mark: string, word: string}}
 */
export function taskState(row) {
  if (isInDoubt(row)) return { state: "in_doubt", mark: "!", word: "in doubt" };
  if (row.state === "failed" && row.reason === "expired") return { ...STATES.failed, word: "expired" };
  return STATES[row.state] ?? { state: "away", mark: "–", word: String(row.state) };
}

/**
 * Decides whether a task has ended.
 * @param {string} state
 */
export function isEnded(state) {
  return state === "completed" || state === "failed" || state === "canceled";
}

/**
 * Returns the row of the running agent that sent a TaskRow, or undefined. An id contains a port, so an agent that
 * started after the message was sent is another one.
 *
 * @param {object} row
 * @param {object[]} agents rows of the overview
 */
export function sendingAgent(row, agents) {
  if (!row.from_agent) return undefined;
  const sent = Date.parse(row.created_at);
  return agents.find((agent) => agent.agent_id === row.from_agent && Date.parse(agent.started_at) <= sent);
}

/**
 * Returns the sender of a TaskRow: an agent that runs by its short name, all others as the row has it.
 *
 * @param {object} row
 * @param {object[]} agents rows of the overview
 */
export function senderName(row, agents) {
  return sendingAgent(row, agents)?.name || row.from || "a person";
}

/**
 * Returns the agent of a TaskRow by its short name if it runs, else as the row has it.
 *
 * @param {object} row
 * @param {object[]} agents rows of the overview
 */
export function agentName(row, agents) {
  return agents.find((agent) => agent.id === row.agent)?.name || row.agent || row.agent_id || "";
}

/** Decides whether a person has to say if the agent took the message of this TaskRow. */
export function isInDoubt(row) {
  return Boolean(row.attention) && row.receipt === "typed" && !isEnded(row.state);
}

/**
 * Returns how far the message of a TaskRow has come: how many of STEPS, and the last step's name, time and source.
 * `failure` is the step that ended it without an answer, or empty.
 */
export function progress(row) {
  const receipts = row.receipts ?? [];
  let reached = 0;
  let failure = "";
  for (const { step } of receipts) {
    const index = STEPS.indexOf(step);
    // A message that was not typed after all goes back to queued.
    if (index >= 0) reached = index + 1;
    else if (FINAL_STEPS.has(step)) failure = step;
  }
  const last = receipts.at(-1);
  return { reached, failure, last: last ?? null };
}

/** Decides whether the message of a TaskRow waits: there is no proof yet that the agent took it. */
export function isWaiting(row) {
  const { reached, failure } = progress(row);
  return !failure && !isEnded(row.state) && reached < 3;
}

/** Returns the receipt that ended the message of a TaskRow, or null while it is under way. */
export function finalReceipt(row) {
  const last = (row.receipts ?? []).at(-1);
  return last && FINAL_STEPS.has(last.step) ? last : null;
}

/** Returns when the agent began to work on the message of a TaskRow, or null. */
export function startedAt(row) {
  const begun = (row.receipts ?? []).filter(({ step }) => step === "submitted" || step === "turn_started");
  return begun.length ? begun[0].at : null;
}

/** Returns how far the message has come as a sentence for screen readers. */
export function progressWords(row) {
  const { last, failure } = progress(row);
  if (!last) return taskState(row).word;
  if (isInDoubt(row)) return "in doubt: typed, and no proof that the agent took it";
  return failure && row.reason && row.reason !== failure ? `${stepWord(last.step)}: ${row.reason.replaceAll("_", " ")}` : stepWord(last.step);
}
