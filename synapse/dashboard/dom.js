/**
 * Elements from data. Everything that agents, files or people wrote becomes a text node here and nowhere else, so it
 * can never become markup. `reveal` shows the characters that would make a command look like another one.
 */

const SVG = "http://www.w3.org/2000/svg";
const PIECE = 1000;
// Each mark is an element of its own; a text of nothing else must not stop the page.
const MOST_MARKS = 2000;

/**
 * Returns a new HTML element.
 *
 * Props: `class`; `on…` adds a listener (`onclick`); `style` is an object of CSS properties, set one by one because
 * the content security policy forbids style attributes; `value`, `checked`, `disabled`, `hidden` and such are
 * properties; all else (`aria-…`, `data-…`, `role`, `href`) is an attribute. `null`, `undefined` and `false` set
 * nothing.
 *
 * Children: nodes, texts, numbers, lists of them; `null`, `undefined` and `false` are left out.
 *
 * @param {string} tag
 * @param {Object<string, any>} [props]
 * @param {...any} children
 * @returns {HTMLElement}
 */
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

/**
 * Returns a new SVG element; props and children are as of `h`.
 *
 * @param {string} tag
 * @param {Object<string, any>} [props]
 * @param {...any} children
 * @returns {SVGElement}
 */
export function svg(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

const PROPERTIES = new Set([
  "value", "checked", "disabled", "hidden", "selected", "open", "indeterminate", "inert", "tabIndex",
]);

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(element, value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Appends children piece by piece: an answer may have more of them than a call takes arguments. */
function append(element, children) {
  const nodes = nodesOf(children);
  for (let at = 0; at < nodes.length; at += PIECE) element.append(...nodes.slice(at, at + PIECE));
}

function setStyle(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, String(value));
}

function nodesOf(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/**
 * Replaces the children of `root`.
 *
 * @param {Element} root
 * @param {...any} children
 */
export function fill(root, ...children) {
  root.replaceChildren();
  append(root, children);
}

/**
 * Brings the children of `root` in line with `items`, one element per item and in their order. An element stays the
 * same while its item's key stays, so focus, scroll position and selection survive an update.
 *
 * @template T
 * @param {Element} root
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => HTMLElement} make makes the element of a new item
 * @param {(element: HTMLElement, item: T) => void} [update] is called for every item, new ones too
 */
export function keyed(root, items, keyOf, make, update) {
  const before = new Map([...root.children].map((child) => [child.dataset.key, child]));
  let place = root.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = before.get(key);
    before.delete(key);
    if (element === undefined) {
      element = make(item);
      element.dataset.key = key;
    }
    update?.(element, item);
    if (element === place) place = place.nextElementSibling;
    else root.insertBefore(element, place);
  }
  for (const element of before.values()) element.remove();
}

/**
 * Returns how long ago `instant` was, as "12s", "3m", "2h" or "4d"; an empty text without an instant.
 *
 * @param {string|number|null} instant RFC 3339, or milliseconds
 * @param {number} [now] milliseconds
 */
export function since(instant, now = Date.now()) {
  const then = instant ? new Date(instant).getTime() : NaN;
  if (Number.isNaN(then)) return "";
  const seconds = Math.max(0, Math.floor((now - then) / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/**
 * Returns the time of day of `instant` as "21:04:07", with the date before it when that is another day.
 *
 * @param {string|number|null} instant
 * @param {number} [now] milliseconds
 */
export function clock(instant, now = Date.now()) {
  const then = new Date(instant ?? NaN);
  if (Number.isNaN(then.getTime())) return "";
  const two = (number) => String(number).padStart(2, "0");
  const time = `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
  if (then.toDateString() === new Date(now).toDateString()) return time;
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())} ${time}`;
}

/**
 * Returns a `<time>` that says how long ago `instant` was; the page keeps it up to date.
 *
 * @param {string|number|null} instant
 */
export function ago(instant) {
  if (!instant) return h("time");
  const label = h("time", { datetime: new Date(instant).toISOString(), title: clock(instant) }, since(instant));
  label.dataset.since = String(instant);
  return label;
}

/** Brings every `ago` of the page up to date. */
export function refreshTimes() {
  for (const label of document.querySelectorAll("time[data-since]")) {
    const text = since(label.dataset.since);
    if (label.textContent !== text) label.textContent = text;
  }
}

const NAMES = new Map([
  [0x00, "null"], [0x07, "bell"], [0x08, "backspace"], [0x0b, "vertical tab"], [0x0c, "form feed"],
  [0x0d, "carriage return"], [0x1b, "escape"], [0x7f, "delete"], [0x85, "next line"], [0x9b, "control sequence"],
  [0xa0, "no-break space"], [0xad, "soft hyphen"], [0x34f, "combining grapheme joiner"], [0x61c, "Arabic letter mark"],
  [0x115f, "Hangul filler"], [0x1160, "Hangul filler"], [0x180e, "Mongolian vowel separator"],
  [0x200b, "zero-width space"], [0x200c, "zero-width non-joiner"], [0x200d, "zero-width joiner"],
  [0x200e, "left-to-right mark"], [0x200f, "right-to-left mark"], [0x2028, "line separator"],
  [0x2029, "paragraph separator"], [0x202a, "left-to-right embedding"], [0x202b, "right-to-left embedding"],
  [0x202c, "pop directional formatting"], [0x202d, "left-to-right override"], [0x202e, "right-to-left override"],
  [0x202f, "narrow no-break space"], [0x2060, "word joiner"], [0x2066, "left-to-right isolate"],
  [0x2067, "right-to-left isolate"], [0x2068, "first strong isolate"], [0x2069, "pop directional isolate"],
  [0x3000, "ideographic space"], [0x3164, "Hangul filler"], [0xfeff, "zero-width no-break space"],
  [0xffa0, "Hangul filler"],
]);

// Characters that show nothing, or that change the order of what is shown. Tab and newline are not among them.
const UNSEEN = anyOf(
  "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f", // controls
  "\\u00a0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u3000", // spaces other than the usual one
  "\\u00ad\\u034f\\u180b-\\u180f\\u200b-\\u200d\\u2060-\\u2065\\ufe00-\\ufe0f\\ufeff", // of no width
  "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u206f", // direction and lines
  "\\u115f\\u1160\\u17b4\\u17b5\\u3164\\uffa0\\ufff0-\\ufffb", // fillers and notes
  "\\u{e0000}-\\u{e0fff}\\ud800-\\udfff\\p{Co}", // tags, halves of characters, private use
);
// Signs that look like those a shell acts on.
const LOOKALIKE_SIGN = anyOf(
  "\\uff01-\\uff0f\\uff1a-\\uff20\\uff3b-\\uff40\\uff5b-\\uff65", // full-width forms
  "\\u2044\\u2215\\u29f8\\u2216\\u29f5\\u2223\\u01c0", // slashes and bars
  "\\u2010-\\u2012\\u2212", // hyphens and minus
  "\\u02bc\\u02b9\\u2032", // quotes
  "\\u037e\\u02d0\\u2236\\ua789\\u0589\\u01c3\\u2024\\ua4f8", // semicolon, colons, exclamation mark, full stops
);
// Letters of other scripts that look like ASCII ones: a word of nothing else reads as an ASCII word.
const TWIN = /^[аеорсухіјѕһԁԛԝҽӏАВЕКМНОРСТУХІЈЅԌԚԜοανρυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ]+$/u;
const WORD = /[\p{L}\p{M}\p{N}_]+/gu;
// Letters that are read for what they are: ASCII ones with an accent, and the Latin ligatures and letters of Europe.
const FAMILIAR = /^[ßẞæÆœŒøØþÞðÐłŁđĐ]$/u;

function anyOf(...ranges) {
  return new RegExp(`[${ranges.join("")}]`, "u");
}

/**
 * Returns `text` as nodes in which characters that hide, reorder or imitate others are marked and named: controls,
 * bidi and zero-width characters, letters of another script inside ASCII words, signs that look like ASCII ones.
 *
 * @param {string} text
 * @returns {Node[]}
 */
export function reveal(text) {
  const nodes = [];
  let copied = 0;
  let plain = "";
  for (const [index, { at, length, name, visible }] of marksIn(text).entries()) {
    plain += text.slice(copied, at);
    copied = at + length;
    const piece = text.slice(at, copied);
    const code = codeOf(piece);
    if (index >= MOST_MARKS) {
      plain += `${visible ? piece : ""}<${code}>`;
      continue;
    }
    if (plain) nodes.push(document.createTextNode(plain));
    plain = "";
    const label = `${code} ${name}`;
    nodes.push(
      h("mark", { class: visible ? "revealed seen" : "revealed", title: label, "data-code": code },
        visible ? piece : "", h("span", { class: "revealed-name" }, visible ? code : label)),
    );
  }
  plain += text.slice(copied);
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}

/**
 * Returns how many characters of `text` `reveal` marks.
 *
 * @param {string} text
 */
export function oddities(text) {
  return marksIn(text).length;
}

function marksIn(text) {
  if (/^[\n\t\x20-\x7e]*$/.test(text)) return []; // the usual case
  const inWords = lookalikeLetters(text);
  const marks = [];
  let at = 0;
  let before = "";
  for (const char of text) {
    const length = char.length;
    if (UNSEEN.test(char)) {
      if (!belongsToEmoji(char, before, text.slice(at + length))) {
        marks.push({ at, length, name: unseenName(char), visible: false });
      }
    } else if (LOOKALIKE_SIGN.test(char)) {
      marks.push({ at, length, name: "looks like an ASCII sign", visible: true });
    } else if (inWords.has(at)) {
      marks.push({ at, length, name: `${scriptOf(char)} letter, looks like another`, visible: true });
    }
    before = char;
    at += length;
  }
  return marks;
}

function lookalikeLetters(text) {
  const found = new Set();
  for (const word of text.matchAll(WORD)) {
    const mixed = /[A-Za-z]/.test(word[0]);
    const twins = !mixed && word[0].length > 1 && TWIN.test(word[0]);
    if (!mixed && !twins && !/[\u{ff10}-\u{ff5a}\u{1d400}-\u{1d7ff}]/u.test(word[0])) continue;
    let at = word.index;
    for (const char of word[0]) {
      if (twins || isForeign(char)) found.add(at);
      at += char.length;
    }
  }
  return found;
}

function isForeign(char) {
  if (/[\x00-\x7f]/.test(char) || FAMILIAR.test(char) || /\p{M}/u.test(char)) return false;
  return !/^[A-Za-z]\p{M}+$/u.test(char.normalize("NFD"));
}

function belongsToEmoji(char, before, after) {
  if (!/[\u200d\ufe0e\ufe0f]/.test(char)) return false;
  const isPicture = (one) => /[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f]/u.test(one) && !/[0-9#*]/.test(one);
  if (char === "\u200d") return isPicture(before) && /^\p{Extended_Pictographic}/u.test(after);
  return isPicture(before) || (/[0-9#*]/.test(before) && after.startsWith("\u20e3"));
}

function unseenName(char) {
  const code = char.codePointAt(0);
  if (NAMES.has(code)) return NAMES.get(code);
  if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) return "control character";
  if ((code >= 0x2000 && code <= 0x200a) || code === 0x205f || code === 0x1680) return "unusual space";
  if (code >= 0xe0000 && code <= 0xe007f) return "invisible tag";
  if ((code >= 0xfe00 && code <= 0xfe0f) || (code >= 0xe0100 && code <= 0xe01ef)) return "variation selector";
  return "invisible character";
}

function scriptOf(char) {
  for (const script of ["Cyrillic", "Greek", "Armenian", "Cherokee", "Hebrew", "Arabic", "Latin", "Han", "Hangul"]) {
    if (new RegExp(`\\p{Script=${script}}`, "u").test(char)) return script;
  }
  return "non-ASCII";
}

function codeOf(char) {
  return `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}
