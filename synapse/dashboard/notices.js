/**
 * Browser notifications while the page is open: one for each need of an agent, closed when the need is gone.
 *
 * Nothing is shown while the person looks at the page, for what was there when it opened, or for what is over within
 * the grace period. Several open pages show one notification: the browser keeps one for each tag.
 */

const GRACE = 1500; // as in the hosts' own notices
const KEY = "synapse.notices";
const TITLES = {
  in_doubt: (name) => `${name}: a message is in doubt`,
  failed: (name) => `${name} has failed`,
  done: (name) => `${name} has answered`,
};

export class BrowserNotices {
  #live;
  #open;
  #known = null;
  #waiting = new Map();
  #shown = new Map();

  /**
   * @param {import("./live.js").Live} live
   * @param {(need: object) => void} open opens the need in the page, after a click on its notification
   */
  constructor(live, open) {
    this.#live = live;
    this.#open = open;
    live.on("rows", () => this.#look());
    // The person looks now: what the page shows needs no notification any more.
    window.addEventListener("focus", () => this.#closeAll());
  }

  /** Returns "on", "off", "blocked" (by the browser) or "missing" (this browser has none, or the page is not secure). */
  get state() {
    if (!("Notification" in window)) return "missing";
    if (Notification.permission === "denied") return "blocked";
    return localStorage.getItem(KEY) === "on" && Notification.permission === "granted" ? "on" : "off";
  }

  /** Switches notifications on, after the browser has asked the person, or off. Returns the new state. */
  async toggle() {
    if (this.state === "on") {
      localStorage.setItem(KEY, "off");
      this.#closeAll();
    } else if (this.state === "off" && (await Notification.requestPermission()) === "granted") {
      localStorage.setItem(KEY, "on");
    }
    return this.state;
  }

  #look() {
    const needs = new Map(this.#live.rows.flatMap((row) => row.needs.map((need) => [need.id, need])));
    for (const [id, timer] of this.#waiting) {
      if (!needs.has(id)) {
        clearTimeout(timer);
        this.#waiting.delete(id);
      }
    }
    for (const [id, notification] of this.#shown) {
      if (!needs.has(id)) {
        notification.close();
        this.#shown.delete(id);
      }
    }
    const known = this.#known;
    this.#known = new Set(needs.keys());
    if (known === null) return;
    for (const need of needs.values()) {
      if (known.has(need.id)) continue;
      this.#waiting.set(
        need.id,
        setTimeout(() => this.#show(need), GRACE),
      );
    }
  }

  #show(need) {
    this.#waiting.delete(need.id);
    if (this.state !== "on" || document.hasFocus()) return;
    const title = (TITLES[need.kind] ?? ((name) => `${name} asks you`))(need.name);
    const notification = new Notification(title, { body: need.title, tag: need.id });
    notification.onclick = () => {
      window.focus();
      notification.close();
      this.#open(need);
    };
    this.#shown.set(need.id, notification);
  }

  #closeAll() {
    for (const notification of this.#shown.values()) notification.close();
    this.#shown.clear();
  }
}
