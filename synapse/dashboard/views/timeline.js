/** Decides what the timeline of a task shows: a row per event, and the gaps of more than a minute. Pure. */

import { counted, secondsBetween } from "../format.js";
import { stepWord } from "../task_words.js";

const GAP_SECONDS = 60;

const STATE_WORDS = {
  submitted: "waits in the queue",
  working: "is working",
  input_required: "asks",
  completed: "is completed",
  failed: "has failed",
  canceled: "is canceled",
};

/**
 * Returns the rows of a timeline: events ({kind: "event", at, what, evidence, source, state}) and gaps ({kind: "gap",
 * seconds}). Pieces of a growing answer that follow each other are one row.
 *
 * @param {object[]} events as `GET /dashboard/tasks/ID/timeline` returns them
 * @param {string} until RFC 3339; a task that has not ended has a gap up to here, with `open` set
 */
export function timeline(events, until = "") {
  const rows = [];
  for (const event of [...events].sort((one, other) => one.seq - other.seq)) {
    const before = rows.at(-1);
    if (before && grows(event) && before.artifact === event.artifact.artifact_id) {
      before.pieces += 1;
      before.characters += textLength(event.artifact);
      before.until = event.at;
      before.evidence = "";
      before.what = `${before.name}: ${counted(before.pieces, "piece")}, ${counted(before.characters, "character")}`;
      continue;
    }
    if (before) addGap(rows, before.until ?? before.at, event.at);
    rows.push(rowOf(event));
  }
  const last = rows.at(-1);
  if (last && until) addGap(rows, last.until ?? last.at, until, true);
  return rows;
}

function addGap(rows, from, to, open = false) {
  const seconds = secondsBetween(from, to);
  if (seconds > GAP_SECONDS) rows.push({ kind: "gap", key: rows.at(-1).key, seconds, open });
}

function grows(event) {
  return event.type === "artifact_added" && event.append === true && Boolean(event.artifact);
}

function textLength(artifact) {
  return (artifact.parts ?? []).reduce((sum, part) => sum + (part.text?.length ?? 0), 0);
}

function rowOf(event) {
  return { kind: "event", key: event.seq, at: event.at, evidence: "", source: "", state: "", ...whatOf(event) };
}

function whatOf(event) {
  switch (event.type) {
    case "task_opened":
      return { what: "the message was stored", evidence: firstLine(event.message), state: "queued" };
    case "state_changed":
      return {
        what: `the task ${STATE_WORDS[event.status] ?? event.status}`,
        evidence: [event.reason?.replaceAll("_", " "), event.note].filter(Boolean).join(": "),
        state: stateColour(event.status),
      };
    case "receipt_changed":
      return {
        what: stepWord(event.step),
        isStep: true,
        evidence: event.evidence ?? "",
        source: event.source ?? "",
        state: stepColour(event.step),
      };
    case "message_added": {
      const who = event.message?.role === "agent" ? "the agent" : "the sender";
      return { what: `${who} added a message`, evidence: firstLine(event.message) };
    }
    case "artifact_added":
      return artifactRow(event);
    case "metadata_changed":
      return { what: metadataWords(event.metadata ?? {}), evidence: metadataEvidence(event.metadata ?? {}) };
    case "attention_changed":
      return event.attention
        ? { what: "needs a person", evidence: event.attention, state: "in_doubt" }
        : { what: "needs no person any more" };
    case "task_hidden":
      return { what: "hidden from lists" };
    default:
      return { what: String(event.type).replaceAll("_", " ") };
  }
}

function artifactRow(event) {
  const artifact = event.artifact ?? {};
  const name = artifact.name || "artifact";
  const characters = textLength(artifact);
  const partial = artifact.metadata?.partial === true;
  return {
    what: partial ? `${name}: began` : `${name} handed over`,
    evidence: characters ? counted(characters, "character") : "",
    source: artifact.metadata?.source ?? "",
    state: partial ? "working" : "done",
    name,
    artifact: artifact.artifact_id,
    pieces: 1,
    characters,
  };
}

function metadataWords(metadata) {
  if (metadata.answered) return "a question was answered";
  if (metadata.question) return "a question was asked";
  if ("question" in metadata) return "the question was closed";
  if (metadata.replied) return `the sender got its reply (${metadata.replied})`;
  if (metadata.waiter_left) return "the waiter left; the answer will come as a message";
  return "metadata changed";
}

function metadataEvidence(metadata) {
  const { question, answered } = metadata;
  if (answered) return [answered.choice, answered.by && `by ${answered.by}`, answered.question].filter(Boolean).join(" · ");
  if ("question" in metadata) return question?.title ?? "";
  return Object.keys(metadata).join(", ");
}

function firstLine(message) {
  const text = (message?.parts ?? []).map((part) => part.text ?? "").join(" ");
  return text.trim().split("\n", 1)[0].slice(0, 200);
}

function stateColour(status) {
  return { submitted: "queued", input_required: "asks", completed: "done", canceled: "away" }[status] ?? status;
}

function stepColour(step) {
  if (step === "answered") return "done";
  if (step === "failed" || step === "expired") return "failed";
  if (step === "canceled") return "away";
  return step === "queued" ? "queued" : "working";
}
