/**
 * One agent's terminal, live, in xterm. It begins with a snapshot, then shows the output from an offset on; after a
 * lost connection it goes on at its last offset. The gateway sends no more than xterm has shown: a terminal that prints
 * faster than a browser paints is shown by snapshots.
 *
 * The terminal has the size of the one who types. This page asks for its own size only while it types and is visible.
 */

import { h } from "./dom.js";
import { inputPieces, jsonIn, Kind, snapshotIn } from "./frames.js";
import { terminalSocket } from "./terminal_socket.js";
import { FitAddon } from "./vendor/addon-fit.js";
import { Unicode11Addon } from "./vendor/addon-unicode11.js";
import { Terminal } from "./vendor/xterm.js";

const MIN_COLUMNS = 80;
const SCROLLBACK_LINES = 5000;
const CREDIT_BYTES = 64 * 1024;
const RESIZE_MS = 150;
const RETRY_MS = 3000;
const RESET = new Uint8Array([0x1b, 0x63]); // RIS, in the stream: what was written before must not come after it
// Dark in both themes, because agents are told so when they ask for the colours of their terminal.
const THEME = {
  background: "#101215", foreground: "#e4e7ec", cursor: "#e4e7ec", cursorAccent: "#101215", selectionBackground: "#3b5b8c",
  black: "#1d2127", red: "#f87171", green: "#4ade80", yellow: "#fcd34d", blue: "#60a5fa", magenta: "#d8a0f0", cyan: "#67d5e5", white: "#d3d8e0",
  brightBlack: "#5f6875", brightRed: "#fca5a5", brightGreen: "#86efac", brightYellow: "#fde68a", brightBlue: "#93c5fd", brightMagenta: "#e6c3f7", brightCyan: "#a5e9f2", brightWhite: "#ffffff",
};

/**
 * Shows an agent's terminal below `root` until it is unmounted.
 *
 * @param {HTMLElement} root
 * @param {{agent: string, context: {api: {token: string}, announce?: (text: string) => void}, readOnly?: boolean}} options
 * @returns {{focus(): void, unmount(): void}}
 */
export function mountTerminal(root, { agent, context, readOnly = false }) {
  return new TerminalView(root, agent, context, readOnly);
}

class TerminalView {
  #agent;
  #context;
  #readOnly;
  #number = 0;
  #terminal;
  #fit = new FitAddon();
  #elements;
  #observer;
  #run = "";
  #offset = null;
  #credited = 0;
  #writing = 0;
  #types = false;
  #resize = 0;
  #retry = 0;
  #asked = "";

  constructor(root, agent, context, readOnly) {
    this.#agent = agent;
    this.#context = context;
    this.#readOnly = readOnly;
    this.#elements = this.#build(root);
    this.#terminal = new Terminal({
      allowProposedApi: true, // for the widths of characters
      cols: MIN_COLUMNS,
      disableStdin: true,
      fontFamily: getComputedStyle(root).getPropertyValue("--mono").trim() || "monospace",
      fontSize: 13,
      macOptionIsMeta: true,
      rows: 24,
      scrollback: SCROLLBACK_LINES,
      theme: THEME,
    });
    this.#terminal.loadAddon(this.#fit);
    this.#terminal.loadAddon(new Unicode11Addon());
    this.#terminal.unicode.activeVersion = "11";
    openWithoutInlineStyles(this.#terminal, this.#elements.box);
    this.#terminal.textarea.setAttribute("aria-label", `Terminal of ${agent}. Control and right bracket leave it.`);
    this.#terminal.onData((text) => this.#type(inputPieces(text)));
    // Reports of old mouse modes are bytes, not text.
    this.#terminal.onBinary((text) => this.#type([Uint8Array.from(text, (character) => character.charCodeAt(0))]));
    this.#terminal.attachCustomKeyEventHandler((event) => this.#leaves(event));
    this.#observer = new ResizeObserver(() => this.#askSize());
    this.#observer.observe(this.#elements.box);
    document.addEventListener("visibilitychange", this.#shown);
    this.#number = terminalSocket.add({ opened: this.#opened, frame: this.#receive, closed: this.#closed }, context.api);
  }

  /** Puts the person's keys into the terminal. */
  focus() {
    this.#terminal.focus();
  }

  /** Ends the view. */
  unmount() {
    clearTimeout(this.#resize);
    clearTimeout(this.#retry);
    document.removeEventListener("visibilitychange", this.#shown);
    this.#observer.disconnect();
    terminalSocket.remove(this.#number);
    this.#terminal.dispose();
    this.#elements.view.remove();
  }

  #build(root) {
    const role = h("span", { class: "terminal-role" });
    const note = h("span", { class: "terminal-note", role: "status" });
    const take = h("button", { type: "button", class: "terminal-take", hidden: true, onclick: () => this.#take() }, "Take keyboard");
    const box = h("div", { class: "terminal-screen" });
    const bar = h("div", { class: "terminal-bar" }, role, note, take);
    const view = h("section", { class: "terminal", "aria-label": `Terminal of ${this.#agent}` }, bar, box);
    root.append(view);
    return { view, role, note, take, box };
  }

  #opened = (number) => {
    this.#number = number;
    this.#open(this.#offset);
  };

  /** Opens the terminal, or asks for another snapshot of it: `after` null. */
  #open(after) {
    const { columns, rows } = this.#wantedSize();
    this.#asked = `${columns}x${rows}`;
    const wanted = { agent: this.#agent, after, run: this.#run, columns, rows, types: !this.#readOnly };
    terminalSocket.send(Kind.OPEN, this.#number, wanted);
  }

  #closed = () => {
    this.#setRole(false);
    this.#say("Not connected. Trying again…");
  };

  #receive = (frame) => {
    switch (frame.kind) {
      case Kind.SNAPSHOT: return this.#rebuild(frame);
      case Kind.OUTPUT: return this.#show(frame);
      case Kind.SIZE: return this.#checkSize(jsonIn(frame.payload));
      case Kind.ROLE: return this.#setRole(jsonIn(frame.payload).types);
      case Kind.EXITED: return this.#say(`The program has ended (status ${jsonIn(frame.payload).status}).`);
      case Kind.LOST: return this.#say("The agent's host is gone. Waiting for it to return…");
      case Kind.ERROR: return this.#fail(jsonIn(frame.payload));
    }
  };

  #rebuild(frame) {
    const { head, data } = snapshotIn(frame.payload);
    this.#run = head.run;
    this.#offset = frame.offset;
    this.#say("");
    // In the callback, because xterm may still be busy with earlier output, which was for the earlier size.
    this.#write(RESET, null, () => this.#terminal.resize(head.columns, head.rows));
    this.#write(data, frame.offset);
  }

  #show(frame) {
    if (frame.offset !== this.#offset) return this.#open(null); // bytes are missing
    this.#say("");
    this.#offset += frame.payload.length;
    this.#write(frame.payload, this.#offset);
  }

  /** Writes bytes; when xterm has shown them, gives credit for everything before `end`. */
  #write(bytes, end, then = () => {}) {
    this.#writing += 1;
    this.#terminal.write(bytes, () => {
      this.#writing -= 1;
      then();
      if (end === null || (this.#writing > 0 && Math.abs(end - this.#credited) < CREDIT_BYTES)) return;
      this.#credited = end;
      terminalSocket.send(Kind.CREDIT, this.#number, null, end);
    });
  }

  #checkSize({ columns, rows }) {
    this.#say("");
    // The terminal has another size than when this view last showed it: what is here may not fit.
    if (this.#offset !== null && (columns !== this.#terminal.cols || rows !== this.#terminal.rows)) this.#open(null);
  }

  #type(pieces) {
    if (!this.#types) return;
    for (const piece of pieces) terminalSocket.send(Kind.INPUT, this.#number, piece);
  }

  #take() {
    terminalSocket.send(Kind.TAKE, this.#number);
    this.focus();
  }

  #setRole(types) {
    const before = this.#types;
    this.#types = types;
    this.#terminal.options.disableStdin = !types;
    const { view, role, take } = this.#elements;
    view.dataset.types = String(types);
    role.textContent = types ? "You type here" : "Read only";
    take.hidden = types || this.#readOnly || !terminalSocket.isOpen;
    if (types === before) return;
    this.#context.announce?.(types ? "You have the keyboard." : "You only look.");
    if (types) this.#askSize();
  }

  #say(text) {
    if (this.#elements.note.textContent !== text) this.#elements.note.textContent = text;
  }

  #fail(error) {
    this.#say(error.hint ? `${error.message}. ${error.hint}` : error.message);
    if (error.code === "agent_not_found" || error.code === "agent_not_responding") {
      clearTimeout(this.#retry);
      this.#retry = setTimeout(() => this.#open(this.#offset), RETRY_MS);
    }
  }

  #wantedSize() {
    const fits = this.#fit.proposeDimensions();
    const columns = Number.isFinite(fits?.cols) ? Math.max(fits.cols, MIN_COLUMNS) : MIN_COLUMNS;
    return { columns, rows: Number.isFinite(fits?.rows) ? Math.max(fits.rows, 2) : 24 };
  }

  #shown = () => {
    if (document.visibilityState === "visible") this.#askSize();
  };

  /** Asks for the size of this view, if it types and is seen; soft keyboards and drags ask many times. */
  #askSize() {
    clearTimeout(this.#resize);
    this.#resize = setTimeout(() => {
      const isSeen = document.visibilityState === "visible" && this.#elements.box.offsetWidth > 0;
      if (!this.#types || !isSeen) return;
      const { columns, rows } = this.#wantedSize();
      if (this.#asked === `${columns}x${rows}`) return;
      this.#asked = `${columns}x${rows}`;
      terminalSocket.send(Kind.RESIZE, this.#number, { columns, rows });
    }, RESIZE_MS);
  }

  /** Leaves the terminal by the key of `synapse attach`; without one, keyboards could not reach the rest of the page. */
  #leaves(event) {
    if (!(event.ctrlKey && !event.altKey && !event.metaKey && event.key === "]")) return true;
    if (event.type === "keydown") {
      event.preventDefault();
      this.#terminal.blur();
      const { view, take } = this.#elements;
      view.tabIndex = -1;
      (take.hidden ? view : take).focus();
    }
    return false;
  }
}

/**
 * Opens a terminal. xterm writes styles as text, in `<style>` elements and in `style` attributes of cells; the content
 * security policy forbids both, and rightly so. Here it sets the same styles through the CSS object model, which the
 * policy allows. It has no setting for that: the two places are those of the version in `vendor/manifest.json`.
 */
function openWithoutInlineStyles(terminal, box) {
  // All style elements are made while it opens, and their text is only replaced later.
  document.createElement = (tag) => (tag === "style" ? adoptedStyle() : create(tag));
  try {
    terminal.open(box);
  } finally {
    delete document.createElement;
  }
  terminal._core._renderService._renderer.value._rowFactory._addStyle = (cell, style) => {
    cell.style.cssText += `;${style}`;
  };
}

function create(tag) {
  return Document.prototype.createElement.call(document, tag);
}

/** Returns an element that stands for a `<style>`: its text becomes a style sheet of the document while it exists. */
function adoptedStyle() {
  const sheet = new CSSStyleSheet();
  const element = create("span");
  element.hidden = true;
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", { set: (css) => sheet.replaceSync(css), get: () => "" });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}
