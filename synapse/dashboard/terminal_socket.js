/**
 * The one WebSocket of the page to all terminals. It connects with the first terminal, closes after the last, and
 * comes back by itself: at once when the page is shown again or the network is back, else after a pause that grows.
 *
 * A laptop that slept has sockets that look open and are dead, so a page that is shown again asks for a sign of life.
 */

import { decodeFrame, encodeFrame, Kind } from "./frames.js";

const PONG_MS = 5000;
const PING_EVERY_MS = 15000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;
const PATH = "/dashboard/terminals";
const PROTOCOL = "synapse.terminals";

class TerminalSocket {
  #socket = null;
  #viewers = new Map();
  #next = 1;
  #pause = FIRST_PAUSE_MS;
  #retry = 0;
  #pong = 0;
  #ping = 0;
  #api = null;

  /**
   * Adds a viewer and returns its number.
   *
   * @param {{opened(): void, frame(frame: object): void, closed(): void}} viewer `opened` is called for each connection
   * @param {{token: string}} api
   * @returns {number}
   */
  add(viewer, api) {
    const number = this.#next++;
    if (this.#viewers.size === 0) this.#start();
    this.#api = api;
    this.#viewers.set(number, viewer);
    if (this.isOpen) viewer.opened(number);
    else if (this.#socket === null) this.#connect();
    return number;
  }

  /**
   * Removes a viewer.
   *
   * @param {number} number
   */
  remove(number) {
    this.send(Kind.CLOSE, number);
    this.#viewers.delete(number);
    if (this.#viewers.size === 0) this.#stop();
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /**
   * Sends a frame if there is a connection; `false` if not.
   *
   * @param {number} kind
   * @param {number} terminal
   * @param {Uint8Array|object|null} [payload]
   * @param {number} [offset]
   */
  send(kind, terminal, payload, offset) {
    if (!this.isOpen) return false;
    this.#socket.send(encodeFrame(kind, terminal, payload, offset));
    return true;
  }

  #start() {
    document.addEventListener("visibilitychange", this.#look);
    window.addEventListener("pageshow", this.#look);
    window.addEventListener("online", this.#look);
    this.#ping = setInterval(this.#look, PING_EVERY_MS);
  }

  #stop() {
    document.removeEventListener("visibilitychange", this.#look);
    window.removeEventListener("pageshow", this.#look);
    window.removeEventListener("online", this.#look);
    clearInterval(this.#ping);
    clearTimeout(this.#retry);
    this.#drop();
  }

  /** Asks for a sign of life, or connects at once. */
  #look = () => {
    if (document.visibilityState !== "visible") return;
    if (this.#socket === null) {
      this.#pause = FIRST_PAUSE_MS;
      this.#connect();
    } else if (this.send(Kind.PING, 0) && !this.#pong) {
      this.#pong = setTimeout(() => this.#lose(), PONG_MS);
    }
  };

  #connect() {
    clearTimeout(this.#retry);
    const address = new URL(PATH, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address, [PROTOCOL, ...(this.#api.token ? [`token.${this.#api.token}`] : [])]);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.#pause = FIRST_PAUSE_MS;
      for (const [number, viewer] of [...this.#viewers]) viewer.opened(number);
    };
    socket.onmessage = (event) => this.#receive(decodeFrame(event.data));
    socket.onclose = () => this.#lose();
    this.#socket = socket;
  }

  #receive(frame) {
    clearTimeout(this.#pong);
    this.#pong = 0;
    this.#viewers.get(frame.terminal)?.frame(frame);
  }

  #lose() {
    this.#drop();
    for (const viewer of [...this.#viewers.values()]) viewer.closed();
    if (this.#viewers.size === 0) return;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#connect(), this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
  }

  #drop() {
    clearTimeout(this.#pong);
    this.#pong = 0;
    const socket = this.#socket;
    this.#socket = null;
    if (socket === null) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }
}

/** The terminals of this page. */
export const terminalSocket = new TerminalSocket();
