/** Send: a message to any agent, with files and a priority; its receipts and its answer appear as they come. */

import { fill, h, reveal } from "../dom.js";
import { taskLink, word } from "../rows.js";
import { stepWord } from "../task_words.js";

const PRIORITIES = ["when there is nothing else", "low", "normal", "before others", "interrupt its current work"];
const NORMAL = 3;
const STEPS = ["queued", "typed", "submitted", "turn_started", "answered"];
const ENDED = new Set(["completed", "failed", "canceled", "rejected"]);

export const view = {
  name: "send",
  title: "Send",

  mount(root, context, params) {
    const { api, live } = context;
    const leaving = new AbortController();
    const to = h("select", { id: "send-to", required: true });
    const priority = h("select", { id: "send-priority" }, PRIORITIES.map((label, index) =>
      h("option", { value: String(index + 1), selected: index + 1 === NORMAL }, `${index + 1} · ${label}`)));
    const text = h("textarea", {
      id: "send-text", placeholder: "What should it do?", "aria-keyshortcuts": "Control+Enter",
    });
    const picker = h("input", { type: "file", multiple: true, id: "send-files", "aria-label": "Files" });
    const fileList = h("ul", { class: "files" });
    const size = h("p", { class: "muted" });
    const button = h("button", { class: "primary decide", type: "submit" }, "Send");
    const sent = h("div", { class: "send", "aria-live": "polite" });
    const drop = h("div", { class: "drop" },
      h("div", { class: "actions" }, picker, h("span", { class: "muted" }, "or drop files here")), fileList, size);
    let files = [];
    let wanted = params.query.get("to") ?? "";

    const form = h("form", { class: "send", onsubmit: (event) => { event.preventDefault(); send(); } },
      h("div", { class: "field-row" },
        h("div", { class: "field" }, h("label", { for: "send-to" }, "To"), to),
        h("div", { class: "field" }, h("label", { for: "send-priority" }, "Priority"), priority)),
      h("div", { class: "field" }, h("label", { for: "send-text" }, "Message"), text),
      drop, h("div", { class: "actions verdict" }, context.gate(button, "send"),
        h("span", { class: "muted" }, "Ctrl+Enter sends")));
    root.append(h("div", { class: "view-head" }, h("h1", {}, "Send")), form, sent);

    const drawAgents = () => {
      const chosen = to.value || wanted;
      const options = live.rows.map((row) => {
        const words = [row.name, word(row.state), row.queue ? `${row.queue} queued` : ""];
        return h("option", { value: row.id }, words.filter(Boolean).join(" · "));
      });
      const nobody = h("option", { value: "" }, live.rows.length ? "choose an agent" : "no agent is running");
      fill(to, live.row(chosen) ? null : nobody, options);
      to.value = live.row(chosen)?.id ?? "";
    };

    const drawFiles = () => {
      fill(fileList, files.map((file) => {
        const remove = () => {
          files = files.filter((one) => one !== file);
          drawFiles();
        };
        return h("li", {}, h("span", { class: "name" }, reveal(file.name)),
          h("span", { class: "muted" }, bytes(file.size)),
          h("button", { type: "button", class: "quiet", "aria-label": `Remove ${file.name}`, onclick: remove }, "×"));
      }));
      const total = files.reduce((sum, file) => sum + file.size, 0);
      const most = Math.floor((context.session.max_body_bytes - new Blob([text.value]).size) * 0.74); // in base64
      size.textContent = files.length ? `${bytes(total)} of at most ${bytes(most)}` : `At most ${bytes(most)} in all.`;
      size.classList.toggle("warning", total > most);
      button.toggleAttribute("aria-busy", total > most);
      context.gate(button, "send");
    };

    const add = (list) => {
      files.push(...list);
      drawFiles();
    };
    picker.addEventListener("change", () => { add(picker.files); picker.value = ""; });
    const { signal } = leaving;
    root.addEventListener("dragover", onDrag, { signal });
    root.addEventListener("dragleave", onDrag, { signal });
    root.addEventListener("drop", onDrop, { signal });
    function onDrag(event) {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      drop.classList.toggle("over", event.type === "dragover");
    }
    function onDrop(event) {
      event.preventDefault();
      drop.classList.remove("over");
      add(event.dataTransfer.files);
    }
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });

    // The same message keeps its id until it was accepted: a second try after a lost answer cannot count twice.
    let messageId = newId();
    let offered = "";

    async function send() {
      const agent = to.value;
      if (!agent || button.disabled) return;
      if (!text.value.trim() && files.length === 0) return text.focus();
      button.setAttribute("aria-busy", "true");
      context.gate(button, "send");
      try {
        const body = { text: text.value, priority: Number(priority.value) };
        if (files.length) body.files = await Promise.all(files.map(encoded));
        const said = JSON.stringify([agent, body]);
        if (offered && offered !== said) messageId = newId();
        offered = said;
        const path = `/dashboard/agents/${encodeURIComponent(agent)}/messages`;
        const { task } = await api.post(path, { ...body, message_id: messageId });
        messageId = newId();
        offered = "";
        text.value = "";
        files = [];
        follow(task, agent);
      } catch (error) {
        context.fail(error);
      } finally {
        button.removeAttribute("aria-busy");
        drawFiles();
      }
    }

    async function follow(task, agent) {
      const steps = h("ol", { class: "steps" });
      const answer = h("div", { class: "prose answer" });
      const line = h("div", { class: "message-head" });
      const message = h("div", { class: "prose muted" }, reveal(textIn(task.message)));
      sent.prepend(h("article", { class: "sent" }, line, message, steps, answer));
      const draw = (now) => {
        const reached = (now.metadata.receipts ?? []).map((one) => one.step);
        const last = STEPS.indexOf(reached.at(-1));
        // Some agents skip a step, and one that ended otherwise has no step to come.
        const shownSteps = last < 0 ? reached : [...reached, ...STEPS.slice(last + 1)];
        fill(line, h("strong", {}, `to ${agent}`), taskLink(now.id), h("span", {}, word(now.status)),
          now.metadata.note ? h("span", {}, now.metadata.note) : null);
        fill(steps, shownSteps.map((step) => h("li", { "data-reached": reached.includes(step) }, stepWord(step))));
        fill(answer, reveal(answerIn(now)));
        answer.hidden = !answer.hasChildNodes();
      };
      draw(task);
      const path = `/dashboard/tasks/${encodeURIComponent(task.id)}/events`;
      while (!leaving.signal.aborted && !ENDED.has(task.status)) {
        try {
          for await (const { data } of api.stream(path, { signal: leaving.signal })) {
            if (data.task) draw((task = data.task));
          }
        } catch (error) {
          if (leaving.signal.aborted || error.status === 401) return;
        }
        if (!ENDED.has(task.status)) await nextConnect(live, leaving.signal);
      }
    }

    const off = live.on("rows", drawAgents);
    drawAgents();
    drawFiles();
    if (wanted) text.focus();
    return {
      unmount() {
        off();
        leaving.abort();
      },
    };
  },
};

/** Returns an id that nobody else has. `crypto.randomUUID` is missing where a gateway is reached without TLS. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Waits until the page is connected again; at least a second, so that a stream that ends at once is no loop. */
async function nextConnect(live, signal) {
  await new Promise((resolve) => setTimeout(resolve, 1000));
  while (!live.isLive && !signal.aborted) {
    await new Promise((resolve) => { const off = live.on("connection", () => { off(); resolve(); }); });
  }
}

function textIn({ parts = [] }) {
  return parts.map((part) => part.text ?? "").join("");
}

/** Returns the answer as far as it has come: the text of the artifacts, else of the agent's last message. */
function answerIn(task) {
  const texts = task.artifacts.map(textIn).filter(Boolean);
  const spoken = (task.history ?? []).filter((message) => message.role === "agent");
  return texts.length ? texts.join("\n") : textIn(spoken.at(-1) ?? {});
}

async function encoded(file) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read: ${reader.error.message}`));
    reader.readAsDataURL(file);
  });
  const data = url.slice(url.indexOf(",") + 1);
  return { name: file.name, media_type: file.type || "application/octet-stream", data };
}

function bytes(count) {
  if (count < 1024) return `${count} B`;
  return count < 1024 * 1024 ? `${Math.round(count / 1024)} kB` : `${(count / 1024 / 1024).toFixed(1)} MB`;
}
