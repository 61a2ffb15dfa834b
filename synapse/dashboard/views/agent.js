/** One agent: what is on that screen? Its needs, its terminal, what waits for it, and its messages over time. */

import { ago, clock, fill, h, keyed, reveal } from "../dom.js";
import { confirmKey } from "../keys.js";
import { needCard, subjectOf } from "../need.js";
import { mark, nameOf, stateLabel, word } from "../rows.js";
import { mountScreen } from "../screen.js";
import { senderName } from "../task_words.js";

const PHONE = window.matchMedia("(max-width: 719px)");
const PAGE = 30; // tasks of the agent that are shown

export const view = {
  name: "agent",
  title: "Agent",

  mount(root, context, { id }) {
    const { api, live } = context;
    const leaving = new AbortController();
    const head = h("div", { class: "view-head" });
    const needs = h("div", { class: "needs-list" });
    const box = h("section", { class: "terminal-box", "aria-label": `Terminal of ${id}` });
    const work = h("div", { class: "queue" });
    const history = h("ol", { class: "history" });
    const tabs = tabList([["messages", "Messages"], ["timeline", "Timeline"]], (name) => {
      shown = name;
      drawHistory();
    });
    const panel = h("section", { role: "tabpanel", "aria-label": "History" }, history);
    const cards = new Map();
    let shown = "messages";
    let tasks = [];
    let terminal = null;
    let terminalOf = "";
    let seenUntil = "";
    root.append(h("div", { class: "agent" }, h("div", {}, head), needs, box, work, tabs, panel));

    const draw = () => {
      const row = live.row(id);
      if (!row) return drawMissing();
      fill(head, PHONE.matches ? h("a", { class: "button quiet", href: "#/agents", "aria-label": "Back to all agents" }, "‹") : null, mark(row.state), h("h1", { class: "agent-name" }, row.name), stateLabel(row),
        h("span", { class: "muted" }, [row.agent_type, row.folder, row.machine].filter(Boolean).join(" · ")),
        h("div", { class: "end" }, h("a", { class: "button", href: `#/send?to=${encodeURIComponent(row.id)}`, "aria-label": `Send a message to ${row.name}` }, "Send")));
      drawNeeds(row);
      drawTerminal(row);
      drawWork(row);
      markSeen(row);
    };

    const drawMissing = () => {
      if (!live.isLive) return fill(head, h("h1", {}, id), h("span", { class: "muted" }, "Connecting…"));
      fill(head, h("h1", {}, id), h("span", { class: "muted" }, "is not running. Its messages are still here."));
      fill(needs);
      fill(work);
      closeTerminal();
      box.hidden = true;
    };

    const drawNeeds = (row) => {
      keyed(needs, row.needs.filter((need) => need.kind !== "done"), (need) => JSON.stringify(need), (need) => {
        const card = needCard(need, context, { atAgent: true });
        cards.set(card.element, { card, need });
        return card.element;
      });
      needs.hidden = row.needs.every((need) => need.kind === "done");
    };

    const drawTerminal = (row) => {
      const way = !row.has_terminal ? "none" : row.state === "away" ? "away" : PHONE.matches ? "text" : "live";
      if (way === terminalOf) return;
      terminalOf = way;
      closeTerminal();
      box.hidden = false;
      if (way === "none") box.hidden = true;
      else if (!context.session.actions.includes("attach")) fill(box, h("p", { class: "muted" }, "This session may not see terminals (action: attach)."));
      else if (way === "away") fill(box, h("p", { class: "muted" }, `Not reachable: ${row.why}`));
      else if (way === "text") terminal = mountScreen(box, { agent: row.id, context, lines: 200, every: 1000 });
      else openTerminal(row);
    };

    const openTerminal = async (row) => {
      fill(box, h("p", { class: "muted" }, "Opening the terminal…"));
      const { mountTerminal } = await import("../terminal.js"); // large: only for those who look at one
      if (leaving.signal.aborted || terminalOf !== "live") return;
      fill(box);
      terminal = mountTerminal(box, { agent: row.id, context, readOnly: false });
    };

    const closeTerminal = () => {
      terminal?.unmount();
      terminal = null;
      fill(box);
    };

    const drawWork = (row) => {
      const lines = [];
      if (row.task) lines.push(h("div", { class: "prose" }, h("strong", {}, "works on "), taskLink(row.task.id), ` from ${nameOf(row.task.from, live.rows)} (${word(row.task.receipt)}): `, reveal(row.task.text)));
      const waiting = tasks.filter((task) => task.state === "submitted" && task.id !== row.task?.id).reverse();
      if (row.queue) lines.push(h("div", {}, h("strong", {}, `queue: ${row.queue}`), h("ol", {}, waiting.map((task) =>
        h("li", {}, taskLink(task.id), h("span", { class: "muted" }, `from ${senderName(task, live.rows)}`), h("span", { class: "text" }, task.text))))));
      for (const owed of row.owes) lines.push(h("div", {}, `owes ${nameOf(owed.to, live.rows)} an answer: `, taskLink(owed.task_id), ` “${owed.text}”`));
      if (row.store_fault) lines.push(h("p", { class: "warning" }, row.store_fault));
      lines.push(h("div", { class: "muted" }, `${word(row.agent_state)}, known from ${row.source || "its host"}`));
      fill(work, lines);
    };

    const drawHistory = () => {
      if (tasks.length === 0) return fill(history, h("li", { class: "muted message" }, "No messages yet."));
      const items = shown === "messages" ? tasks.map((task) => messageOf(task, senderName(task, live.rows))) : tasks.flatMap((task) => stepsOf(task, senderName(task, live.rows))).sort((one, other) => (one.at < other.at ? 1 : -1)).map((step) => step.element);
      fill(history, items);
    };

    const load = async () => {
      try {
        const answer = await api.get(`/dashboard/tasks?agent=${encodeURIComponent(id)}&limit=${PAGE}`, { signal: leaving.signal });
        tasks = answer.tasks;
      } catch (error) {
        if (!leaving.signal.aborted) context.fail(error);
        return;
      }
      drawHistory();
      const row = live.row(id);
      if (row) drawWork(row);
    };

    /** Whoever has the agent open has its answers before the eyes; only a visible page counts. */
    const markSeen = (row) => {
      const ended = row.needs.filter((need) => need.can.includes("seen") && need.kind === "done").map((need) => need.asked_at).sort().at(-1) ?? "";
      if (ended <= seenUntil || document.visibilityState !== "visible" || !context.can("read")) return;
      seenUntil = ended;
      context.seen(row.id, ended).catch(context.fail);
    };

    const onTask = ({ task }) => {
      if (task.agent !== id && task.agent_id !== id && task.agent_id !== live.row(id)?.agent_id) return;
      tasks = [task, ...tasks.filter((one) => one.id !== task.id)].sort((one, other) => (one.created_at < other.created_at ? 1 : -1)).slice(0, PAGE);
      drawHistory();
    };

    const decide = async (key, label, act) => {
      const found = [...cards.values()].find(({ card }) => card.element.isConnected && card[act]);
      if (!found || !context.can("approve")) return;
      const { card, need } = found;
      card.element.focus();
      if (await confirmKey(key, `${label} this for ${need.name}?`, ...subjectOf(need))) card[act]();
    };

    const onSize = () => draw();
    const onVisible = () => draw();
    PHONE.addEventListener("change", onSize);
    document.addEventListener("visibilitychange", onVisible);
    const offs = [live.on("rows", draw), live.on("task", onTask), live.on("resync", load), live.on("connection", () => live.isLive || draw())];
    draw();
    load();

    return {
      unmount() {
        leaving.abort();
        PHONE.removeEventListener("change", onSize);
        document.removeEventListener("visibilitychange", onVisible);
        for (const off of offs) off();
        terminal?.unmount();
      },
      keys: { a: () => decide("a", "Allow", "allow"), d: () => decide("d", "Deny", "deny") },
    };
  },
};

function tabList(names, choose) {
  const buttons = names.map(([name, label], index) => h("button", {
    role: "tab", "aria-selected": String(index === 0), tabindex: index === 0 ? "0" : "-1",
    onclick: () => select(index),
    onkeydown: (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by) select((index + by + names.length) % names.length);
    },
  }, label));
  const select = (chosen) => {
    buttons.forEach((button, index) => {
      button.setAttribute("aria-selected", String(index === chosen));
      button.tabIndex = index === chosen ? 0 : -1;
    });
    buttons[chosen].focus();
    choose(names[chosen][0]);
  };
  return h("div", { class: "switch", role: "tablist", "aria-label": "History" }, buttons);
}

function taskLink(id) {
  return h("a", { class: "link mono", href: `#/tasks/${encodeURIComponent(id)}` }, id.slice(0, 8));
}

function messageOf(task, sender) {
  return h("li", { class: "message" },
    h("div", { class: "message-head" }, h("strong", {}, sender), ago(task.created_at), taskLink(task.id), h("span", {}, word(task.state)), h("span", {}, word(task.receipt))),
    h("div", { class: "prose" }, reveal(task.text), cut(task.text) ? " …" : null),
    task.answer ? h("div", { class: "prose answer" }, reveal(task.answer), cut(task.answer) ? [" … ", h("a", { class: "link", href: `#/tasks/${encodeURIComponent(task.id)}` }, "whole answer")] : null) : null);
}

/** Rows of tasks have the beginning of long texts. */
function cut(text) {
  return text.length >= 300;
}

function stepsOf(task, sender) {
  return task.receipts.map(({ step, at, source }) => ({
    at,
    element: h("li", { class: "step" }, h("time", { datetime: at }, clock(at)), h("span", {}, word(step)),
      h("span", { class: "text" }, taskLink(task.id), ` ${sender}: ${task.text}`, source ? h("span", { class: "muted" }, ` · ${source}`) : null)),
  }));
}
