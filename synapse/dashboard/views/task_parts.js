/**
 * The contents of messages and artifacts: texts with coloured code, images, files to download, data.
 *
 * An `<img>` or a link cannot send the session's token, so bytes are fetched and shown from blob URLs. Only the image
 * types that the gateway serves as images are shown; every other file is only offered for download.
 */

import { fill, h, reveal } from "../dom.js";
import { size } from "../format.js";
import { fences, highlighted, languageOf } from "../highlight.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MOST_SHOWN = 200_000;
const LONGEST_NAME = 120;

/** Shows the parts of one task, and keeps the bytes of its files until `close`. */
export class Parts {
  #api;
  #taskId;
  #fail;
  #blobs = new Map();
  #urls = [];
  #abort = new AbortController();

  /**
   * @param {{api: object, fail: (error: Error) => void}} context
   * @param {string} taskId
   */
  constructor(context, taskId) {
    this.#api = context.api;
    this.#fail = (error) => this.#abort.signal.aborted || context.fail(error);
    this.#taskId = taskId;
  }

  /** Ends all requests and frees the bytes. */
  close() {
    this.#abort.abort();
    for (const url of this.#urls) URL.revokeObjectURL(url);
  }

  /**
   * Brings `root` in line with `parts`. Blocks that have not changed stay the same elements, so an answer that grows
   * keeps its selection and its images.
   *
   * @param {Element} root
   * @param {object[]} parts
   * @param {string} [name] names the language of a text that is one file of code
   */
  show(root, parts, name = "") {
    const blocks = parts.flatMap((part) => blocksOf(part, name));
    blocks.forEach((block, index) => {
      const signature = JSON.stringify(block);
      const element = root.children[index];
      if (element?.signature === signature) return;
      const made = this.#elementOf(block);
      made.signature = signature;
      if (element) element.replaceWith(made);
      else root.append(made);
    });
    while (root.children.length > blocks.length) root.lastElementChild.remove();
  }

  #elementOf(block) {
    switch (block.kind) {
      case "text":
        return h("p", { class: "part-text", dir: "auto" }, reveal(block.text));
      case "code":
        return codeBlock(block.text, block.language);
      case "link":
        return linkTo(block);
      default:
        return this.#file(block);
    }
  }

  #file(file) {
    const name = file.name || `file-${file.number}`;
    const shown = h("div", { class: "part-file-shown" });
    const download = h("button", { type: "button", onclick: () => this.#download(file, name) }, "Download");
    const label = h("span", { class: "part-file-name" }, h("bdi", {}, ...reveal(name.slice(0, LONGEST_NAME))),
      h("span", { class: "muted" }, " ", ...reveal([file.type.slice(0, 80), file.size === null ? "" : size(file.size)].filter(Boolean).join(" · "))));
    if (IMAGES.has(file.type)) this.#image(file, name, shown);
    const text = isText(file) ? h("button", { type: "button", onclick: () => this.#text(file, shown, text) }, "Show") : null;
    return h("div", { class: "part-file" }, h("div", { class: "part-file-head" }, label, text, download), shown);
  }

  async #image(file, name, root) {
    try {
      const url = this.#urlOf(await this.#blob(file));
      const image = h("img", { class: "part-image", src: url, alt: name.slice(0, LONGEST_NAME), loading: "lazy" });
      image.addEventListener("error", () => fill(root, h("p", { class: "muted" }, "This image cannot be shown.")));
      fill(root, image);
    } catch (error) {
      this.#fail(error);
    }
  }

  async #text(file, root, button) {
    try {
      const blob = await this.#blob(file);
      const text = await blob.slice(0, MOST_SHOWN).text();
      const rest = blob.size > MOST_SHOWN ? h("p", { class: "muted" }, `The first ${size(MOST_SHOWN)} of ${size(blob.size)}.`) : null;
      fill(root, codeBlock(text, languageOf(file.name) || languageOf(file.type)), rest);
      button.remove();
    } catch (error) {
      this.#fail(error);
    }
  }

  async #download(file, name) {
    try {
      const url = this.#urlOf(await this.#blob(file));
      h("a", { href: url, download: name.split(/[/\\]/).at(-1) }).click();
    } catch (error) {
      this.#fail(error);
    }
  }

  async #blob(file) {
    const known = this.#blobs.get(file.number);
    if (known) return known;
    const path = `/dashboard/tasks/${encodeURIComponent(this.#taskId)}/files/${file.number}`;
    const blob = await this.#api.blob(path, { signal: this.#abort.signal });
    this.#blobs.set(file.number, blob);
    return blob;
  }

  #urlOf(blob) {
    const url = URL.createObjectURL(blob);
    this.#urls.push(url);
    return url;
  }
}

/**
 * Returns a block of coloured code.
 *
 * @param {string} text
 * @param {string} language
 */
export function codeBlock(text, language) {
  return h("pre", { class: "part-code", tabIndex: 0, dir: "ltr" }, h("code", {}, highlighted(text, language)));
}

/**
 * Returns the parts of an artifact with texts that follow each other as one: a text that came in chunks has a part for
 * each of them.
 *
 * @param {object[]} parts
 */
export function joined(parts) {
  const whole = [];
  for (const part of parts) {
    const before = whole.at(-1);
    const isMore = before && [before, part].every((one) => one.type === "text" && !one.name && !one.mimeType);
    if (isMore) whole[whole.length - 1] = { type: "text", text: before.text + part.text };
    else whole.push(part);
  }
  return whole;
}

/** Returns what a part shows: texts cut at their code, code, a file, or a link to a file elsewhere. */
function blocksOf(part, name) {
  if (part.type === "text") {
    const language = languageOf(part.name || part.mimeType || name);
    if (language) return [{ kind: "code", text: part.text, language }];
    return fences(part.text ?? "");
  }
  if (part.type === "data") return [{ kind: "code", text: JSON.stringify(part.data, null, 2), language: "json" }];
  const file = part.file ?? {};
  if (file.uri) return [{ kind: "link", uri: String(file.uri), name: file.name ?? "" }];
  return [{ kind: "file", number: file.number, size: file.size ?? null, name: file.name ?? "", type: (file.mimeType ?? "").toLowerCase() }];
}

function linkTo({ uri, name }) {
  // A file elsewhere is never fetched by the page, and only addresses of the web become links.
  const isWeb = /^https?:\/\//i.test(uri);
  const words = reveal(uri);
  const link = isWeb ? h("a", { href: uri, target: "_blank", rel: "noopener noreferrer" }, ...words) : h("code", {}, ...words);
  return h("p", { class: "part-link" }, name ? h("bdi", {}, ...reveal(name), ": ") : null, link);
}

function isText({ name, type }) {
  return /^text\/|json|xml|yaml|toml|javascript/.test(type) || Boolean(languageOf(name)) || /\.(txt|md|log|csv)$/i.test(name);
}
