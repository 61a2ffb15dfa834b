/**
 * The picture of an agent's screen as text in elements: for the cards of agents, and for phones instead of a terminal.
 * It asks for the screen again and again while it is seen, and is told when nothing has changed.
 */

import { fill, h } from "./dom.js";

const SLOWEST_MS = 10000;
// Colours 0 to 15, as the live terminal has them.
const PALETTE = [
  "#1d2127", "#f87171", "#4ade80", "#fcd34d", "#60a5fa", "#d8a0f0", "#67d5e5", "#d3d8e0",
  "#5f6875", "#fca5a5", "#86efac", "#fde68a", "#93c5fd", "#e6c3f7", "#a5e9f2", "#ffffff",
];
const FOREGROUND = "#e4e7ec";
const BACKGROUND = "#101215";
const STEPS = [0, 95, 135, 175, 215, 255];

/**
 * Shows the screen of an agent below `root` until it is unmounted.
 *
 * @param {HTMLElement} root
 * @param {{agent: string, context: {api: object}, lines?: number, every?: number, isCard?: boolean}} options `lines` of
 *   scrollback come before the screen; the screen is asked for every so many milliseconds; a card
 *   has room for its end only and cannot be scrolled: there, equal blank lines that follow each other are one, so that
 *   what was said is seen above the prompt
 * @returns {{unmount(): void}}
 */
export function mountScreen(root, { agent, context, lines = 0, every = 1000, isCard = false }) {
  const picture = h("pre", { class: "screen", role: "img", "aria-label": `Screen of ${agent}` });
  const note = h("p", { class: "screen-note muted", hidden: true });
  const leaving = new AbortController();
  const path = `/dashboard/agents/${encodeURIComponent(agent)}/screen?lines=${lines}`;
  let shown = [];
  let version = "";
  let timer = 0;
  let failures = 0;

  const isSeen = () => document.visibilityState === "visible" && root.isConnected && root.getClientRects().length > 0;

  const look = async () => {
    clearTimeout(timer);
    if (isSeen()) await load();
    if (!leaving.signal.aborted) timer = setTimeout(look, Math.min(every * 2 ** failures, Math.max(every, SLOWEST_MS)));
  };

  const load = async () => {
    try {
      const headers = version ? { "If-None-Match": version } : {};
      const response = await context.api.request("GET", path, undefined, { signal: leaving.signal, headers });
      if (response.status !== 304) {
        draw(await response.json());
        version = response.headers.get("ETag") ?? "";
      }
      if (isCard) picture.scrollTop = picture.scrollHeight; // a browser forgets it when a card moves
      failures = 0;
      note.hidden = true;
      picture.classList.remove("stale");
    } catch (error) {
      if (leaving.signal.aborted) return;
      failures += 1;
      fill(note, error.message);
      note.hidden = false;
      picture.classList.add("stale");
    }
  };

  const draw = (screen) => {
    const atEnd = picture.scrollHeight - picture.scrollTop - picture.clientHeight < 4;
    picture.style.setProperty("--columns", String(screen.columns));
    const used = screen.lines.slice(0, usedLines(screen));
    const lines = isCard ? used.filter((line, row) => !isBlank(line) || !isSame(line, used[row - 1])) : used;
    const said = lines.map((line) => JSON.stringify(line));
    while (picture.children.length > said.length) picture.lastChild.remove();
    lines.forEach((line, row) => {
      if (shown[row] === said[row] && picture.children[row]) return;
      const element = h("div", {}, line.map(runOf));
      if (picture.children[row]) picture.children[row].replaceWith(element);
      else picture.append(element);
    });
    shown = said;
    if (atEnd) picture.scrollTop = picture.scrollHeight;
  };

  const wake = () => {
    if (document.visibilityState === "visible") look();
  };

  root.append(picture, note);
  document.addEventListener("visibilitychange", wake);
  look();
  return {
    unmount() {
      leaving.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wake);
      picture.remove();
      note.remove();
    },
  };
}

/** Returns how many lines there are before the blank rest of the screen, which would hide them: the end is shown. */
function usedLines({ lines, cursor }) {
  const last = lines.findLastIndex((line) => line.some(([text, style]) => text.trim() || style?.bg !== undefined || style?.r));
  return Math.max(last, cursor ? cursor[0] : -1) + 1;
}

/** Returns whether a line has neither text nor a cursor; a program that paints its ground paints blank lines, too. */
function isBlank(line) {
  return line.every(([text, style]) => !text.trim() && !style?.r);
}

function isSame(line, other) {
  return JSON.stringify(line) === JSON.stringify(other);
}

/** Returns one run of text in one style, `[text, style]`. */
function runOf([text, style]) {
  if (!style) return document.createTextNode(text);
  let colour = colourOf(style.fg);
  let ground = colourOf(style.bg);
  if (style.r) [colour, ground] = [ground ?? BACKGROUND, colour ?? FOREGROUND];
  const lines = [style.u && "underline", style.s && "line-through"].filter(Boolean).join(" ");
  const css = {
    color: colour, "background-color": ground, "font-weight": style.b && "bold", "font-style": style.i && "italic",
    opacity: style.d && "0.65", "text-decoration": lines,
  };
  return h("span", { style: Object.fromEntries(Object.entries(css).filter(([, value]) => value)) }, text);
}

/** Returns the CSS colour of a number of the palette, or of "#rrggbb"; undefined for the default and anything else. */
function colourOf(colour) {
  if (typeof colour === "string") return /^#[0-9a-f]{6}$/i.test(colour) ? colour : undefined;
  if (!Number.isInteger(colour) || colour < 0 || colour > 255) return undefined;
  if (colour < 16) return PALETTE[colour];
  if (colour >= 232) {
    const grey = 8 + (colour - 232) * 10;
    return `rgb(${grey} ${grey} ${grey})`;
  }
  const cube = colour - 16;
  return `rgb(${STEPS[Math.floor(cube / 36)]} ${STEPS[Math.floor(cube / 6) % 6]} ${STEPS[cube % 6]})`;
}
