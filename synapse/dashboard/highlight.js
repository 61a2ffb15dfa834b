/**
 * Colours code: a small tokenizer for strings, comments, numbers and keywords, good enough to read an answer by. It
 * never changes the text: the tokens put together are the code.
 */

import { h, reveal } from "./dom.js";

const C_LIKE = { line: ["//"], block: [["/*", "*/"]], quotes: ['"', "'"] };
const HASH = { line: ["#"], block: [], quotes: ['"', "'"] };

const KEYWORDS = {
  python:
    "and as assert async await break case class continue def del elif else except False finally for from global if " +
    "import in is lambda match None nonlocal not or pass raise return True try while with yield self",
  javascript:
    "as async await break case catch class const continue debugger default delete do else enum export extends false " +
    "finally for from function get if implements import in instanceof interface let new null of package private " +
    "protected public return set static super switch this throw true try type typeof undefined var void while with " +
    "yield",
  shell:
    "case do done elif else esac exit export fi for function if in local read return set shift source then trap " +
    "unset until while",
  go:
    "break case chan const continue default defer else fallthrough false for func go goto if import interface map " +
    "nil package range return select struct switch true type var",
  rust:
    "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move " +
    "mut pub ref return self Self static struct super trait true type unsafe use where while",
  c:
    "auto bool break case catch char class const constexpr continue default delete do double else enum explicit " +
    "extern false final float for friend goto if inline int interface long namespace new null nullptr operator " +
    "override package private protected public return short signed sizeof static struct super switch template this " +
    "throw true try typedef typename union unsigned using var virtual void volatile while",
  sql:
    "add all alter and as asc between by case create delete desc distinct drop else end exists from group having in " +
    "index inner insert into is join left like limit not null on or order outer primary right select set table then " +
    "union unique update values view when where with",
  data: "true false null yes no on off",
};

const LANGUAGES = {
  python: { ...HASH, triple: true, keywords: words("python") },
  javascript: { ...C_LIKE, quotes: ['"', "'", "`"], keywords: words("javascript") },
  shell: { ...HASH, keywords: words("shell") },
  go: { ...C_LIKE, quotes: ['"', "'", "`"], keywords: words("go") },
  rust: { ...C_LIKE, quotes: ['"'], keywords: words("rust") },
  c: { ...C_LIKE, keywords: words("c") },
  sql: { line: ["--"], block: [["/*", "*/"]], quotes: ["'", '"'], anyCase: true, keywords: words("sql") },
  data: { ...HASH, keywords: words("data") },
  json: { line: [], block: [], quotes: ['"'], keywords: words("data") },
  css: { line: [], block: [["/*", "*/"]], quotes: ['"', "'"], keywords: new Set() },
  markup: { line: [], block: [["<!--", "-->"]], quotes: ['"', "'"], keywords: new Set() },
};

const NAMES = {
  python: "py python python3 pyi pyw",
  javascript: "js mjs cjs jsx ts tsx mts javascript typescript ecmascript",
  shell: "sh bash zsh shell console shellscript x-sh fish dockerfile makefile",
  go: "go golang",
  rust: "rs rust",
  c: "c h cc cpp cxx hpp c++ csrc cs csharp java kt kotlin swift scala php dart",
  sql: "sql sqlite psql",
  data: "yaml yml toml ini cfg conf rb ruby pl r",
  json: "json jsonl ndjson json5",
  css: "css scss less",
  markup: "html htm xml svg vue xhtml",
  diff: "diff patch udiff",
};

const LANGUAGE_OF = new Map(
  Object.entries(NAMES).flatMap(([language, names]) => names.split(" ").map((name) => [name, language])),
);

const MOST_COLOURED = 200_000;
const MOST_TOKENS = 20_000;

/**
 * Returns the language of a file name, an extension, the word after a fence or a media type; empty if none is known.
 * @param {string} name
 */
export function languageOf(name) {
  const lower = name.toLowerCase().trim();
  const subtype = lower.includes("/") && !lower.includes(".") ? lower.split(";")[0].split("/").at(-1) : lower;
  const end = subtype.split(/[./\\]/).at(-1).replace(/^x-/, "").replace(/^script\./, "");
  return LANGUAGE_OF.get(end) ?? "";
}

/**
 * Splits code into tokens, each a kind (string, comment, number, keyword, added, removed, place, or empty) and its text.
 * @param {string} code
 * @param {string} language as `languageOf` returns it
 * @returns {Array<[string, string]>}
 */
export function tokens(code, language) {
  // A page must stay quick with any text; so much code is not read for its colours.
  if (code.length > MOST_COLOURED) return [["", code]];
  const rules = LANGUAGES[language];
  const found = language === "diff" ? diffTokens(code) : rules ? scan(code, rules) : [];
  return found.length > 0 && found.length <= MOST_TOKENS ? found : [["", code]];
}

/**
 * Returns the nodes of coloured code, with hidden and look-alike characters made visible.
 *
 * @param {string} code
 * @param {string} language
 * @returns {Node[]}
 */
export function highlighted(code, language) {
  return tokens(code, language).flatMap(([kind, text]) =>
    kind ? [h("span", { class: `code-${kind}` }, reveal(text))] : reveal(text),
  );
}

/**
 * Splits a text at its fenced code blocks, as agents write them. A fence without an end goes on to the end of the text,
 * as in an answer that still grows.
 * @param {string} text
 * @returns {Array<{kind: "text"|"code", text: string, language: string}>}
 */
export function fences(text) {
  const blocks = [];
  let lines = [];
  let fence = "";
  let language = "";
  const close = (kind) => {
    const joined = lines.join("\n");
    if (kind === "code" || joined.trim()) blocks.push({ kind, text: kind === "text" ? joined.replace(/^\n+|\n+$/g, "") : joined, language });
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/.exec(line);
    if (!fence && mark) {
      close("text");
      [fence, language] = [mark[1], languageOf(mark[2])];
    } else if (fence && mark && !mark[2] && mark[1][0] === fence[0] && mark[1].length >= fence.length) {
      close("code");
      [fence, language] = ["", ""];
    } else {
      lines.push(line);
    }
  }
  close(fence ? "code" : "text");
  return blocks;
}

function words(language) {
  return new Set(KEYWORDS[language].split(" "));
}

function scan(code, rules) {
  const found = [];
  let plain = "";
  const add = (kind, text) => {
    if (plain) found.push(["", plain]);
    plain = "";
    found.push([kind, text]);
  };
  let at = 0;
  while (at < code.length) {
    const end = commentEnd(code, at, rules);
    if (end > at) {
      add("comment", code.slice(at, end));
      at = end;
      continue;
    }
    if (rules.quotes.includes(code[at])) {
      const close = stringEnd(code, at, rules);
      add("string", code.slice(at, close));
      at = close;
      continue;
    }
    const word = wordAt(code, at);
    if (!word) {
      plain += code[at];
      at += 1;
      continue;
    }
    if (/^\d/.test(word)) add("number", word);
    else if (rules.keywords.has(rules.anyCase ? word.toLowerCase() : word)) add("keyword", word);
    else plain += word;
    at += word.length;
  }
  if (plain) found.push(["", plain]);
  return found;
}

function wordAt(code, at) {
  const pattern = /[A-Za-z_$][\w$]*|\d[\w.]*/y;
  pattern.lastIndex = at;
  return pattern.exec(code)?.[0] ?? "";
}

function commentEnd(code, at, rules) {
  for (const [open, close] of rules.block) {
    if (code.startsWith(open, at)) {
      const end = code.indexOf(close, at + open.length);
      return end < 0 ? code.length : end + close.length;
    }
  }
  for (const open of rules.line) {
    // `$#` and `a#b` of a shell are no comments.
    if (code.startsWith(open, at) && (open !== "#" || at === 0 || /\s/.test(code[at - 1]))) {
      const end = code.indexOf("\n", at);
      return end < 0 ? code.length : end;
    }
  }
  return at;
}

function stringEnd(code, at, rules) {
  const quote = code[at];
  if (rules.triple && code.startsWith(quote.repeat(3), at)) {
    const end = code.indexOf(quote.repeat(3), at + 3);
    return end < 0 ? code.length : end + 3;
  }
  for (let index = at + 1; index < code.length; index += 1) {
    if (code[index] === "\\") index += 1;
    else if (code[index] === quote) return index + 1;
    // An apostrophe in a text would colour the rest of the file.
    else if (code[index] === "\n" && quote !== "`") return index;
  }
  return code.length;
}

function diffTokens(code) {
  return code.split(/(?<=\n)/).map((line) => {
    if (/^(\+\+\+|---|diff |index )/.test(line)) return ["keyword", line];
    if (line.startsWith("@@")) return ["place", line];
    if (line.startsWith("+")) return ["added", line];
    if (line.startsWith("-")) return ["removed", line];
    return ["", line];
  });
}
