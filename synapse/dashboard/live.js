/**
 * The page's one live connection: the rows of all agents and every event of the log, from a cursor.
 *
 * It shows nothing that the gateway has not said. Each connect begins with the whole overview; when bytes stay away
 * for longer than the gateway's ping allows, the connection counts as dead, also right after the laptop slept.
 *
 *     connecting ──overview──▶ live ──silence, error──▶ offline ──overview──▶ live
 *                                                          └──session ended──▶ ended
 */

import { ApiError } from "./api.js";

const SILENCE = 12_000; // the gateway pings every 5 s: two were missed
const STALE = 6_000; // after a sleep or a tab change, a missed ping is enough to connect anew
const SET_BACK = 1000; // a clock is corrected by less than this all the time
const WAITS = [0, 100, 250, 500, 1000, 2000];

export class Live {
  /** The agents' rows, in the gateway's order. */
  rows = [];
  /** The cursor up to which events were seen, which may be too large for a number; null before the first overview. */
  cursor = null;
  /** `since` is, in milliseconds, when the state began; while offline, when the gateway was last heard. */
  connection = { state: "connecting", since: Date.now() };

  #api;
  #listeners = new Map();
  #heard = 0;
  #tries = 0;
  #attempt = null;
  #wake = null;

  /** @param {{stream: Function}} api */
  constructor(api) {
    this.#api = api;
  }

  /**
   * Calls `listener` on each event of that name and returns a function that ends it.
   *
   * rows: the rows changed · task {seq, event, task}: an event of the log · resync: events were missed, lists must be
   * loaded anew · connection: `live.connection` changed · ended (error): the session is over.
   *
   * @param {"rows"|"task"|"resync"|"connection"|"ended"} name
   * @param {(data: any) => void} listener
   * @returns {() => void}
   */
  on(name, listener) {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** Returns whether what the page shows is true now, so that a person may act on it. */
  get isLive() {
    return this.connection.state === "live";
  }

  /**
   * Returns the row of an agent, by its name at the gateway or its id.
   *
   * @param {string} id
   */
  row(id) {
    return this.rows.find((row) => row.id === id || row.agent_id === id);
  }

  /** Connects, and keeps connected until the session ends. */
  async start() {
    setInterval(() => this.#check(SILENCE), 1000);
    for (const name of ["visibilitychange", "pageshow", "focus", "online", "offline"]) {
      (name === "visibilitychange" ? document : window).addEventListener(name, () => {
        if (document.visibilityState === "visible") this.#check(name === "online" || name === "offline" ? 0 : STALE);
      });
    }
    while (this.connection.state !== "ended") {
      await this.#pause(WAITS[Math.min(this.#tries, WAITS.length - 1)]);
      this.#tries += 1;
      await this.#connect();
    }
  }

  async #connect() {
    const attempt = (this.#attempt = new AbortController());
    this.#heard = Date.now();
    const onBytes = () => (this.#heard = Date.now());
    try {
      const path = "/dashboard/events" + (this.cursor === null ? "" : `?after=${this.cursor}`);
      for await (const event of this.#api.stream(path, { signal: attempt.signal, onBytes })) {
        if (attempt.signal.aborted) break;
        this.#receive(event);
      }
    } catch (error) {
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return this.#end(error);
      if (!(error instanceof ApiError || error instanceof TypeError || attempt.signal.aborted)) console.error(error);
    } finally {
      attempt.abort();
    }
    this.#lose();
  }

  #receive({ id, event, data }) {
    if (id) this.cursor = id; // the gateway sends no event of the log after a later id
    switch (event) {
      case "overview":
        this.rows = data.agents;
        this.#tries = 0;
        this.#set("live", Date.now());
        this.#emit("rows");
        break;
      case "agent":
        this.rows = placed(this.rows, data.agent);
        this.#emit("rows");
        break;
      case "gone":
        this.rows = this.rows.filter((row) => row.id !== data.id);
        this.#emit("rows");
        break;
      case "task":
        this.#emit("task", data);
        break;
      case "resync":
        this.#emit("resync");
        break;
      default: // a ping; it has counted as bytes
    }
  }

  /** Ends a connection that was silent for longer than `limit`, and tries at once instead of after a pause. */
  #check(limit) {
    if (this.connection.state === "ended") return;
    // Below zero: the clock was set back, and how long the silence was nobody knows.
    const silence = Date.now() - this.#heard;
    if (silence >= limit || silence < -SET_BACK) {
      this.#lose();
      this.#attempt?.abort();
    }
    if (limit < SILENCE) this.#wake?.();
  }

  #lose() {
    if (this.connection.state === "live") this.#set("offline", this.#heard);
    else if (this.connection.state === "connecting") this.#set("offline", this.connection.since);
  }

  #end(error) {
    this.#set("ended", Date.now());
    this.#emit("ended", error);
  }

  #set(state, at) {
    if (this.connection.state === state) return;
    this.connection = { state, since: at };
    this.#emit("connection", this.connection);
  }

  #emit(name, data) {
    for (const listener of this.#listeners.get(name) ?? []) listener(data);
  }

  #pause(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        this.#tries = 0;
        resolve();
      };
    });
  }
}

const ORDER = ["asks", "in_doubt", "failed", "done", "working", "queued", "starting", "ready", "away"];

/** Returns `rows` with `row` in its place: by state, in a state the longest first, as the gateway orders them. */
function placed(rows, row) {
  const keyOf = (one) => [ORDER.indexOf(one.state), one.since || "~", one.name];
  return [...rows.filter((one) => one.id !== row.id), row].sort((one, other) => {
    const [mine, theirs] = [keyOf(one), keyOf(other)];
    const at = mine.findIndex((part, index) => part !== theirs[index]);
    return at < 0 ? 0 : mine[at] < theirs[at] ? -1 : 1;
  });
}
