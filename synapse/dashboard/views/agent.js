/** One agent: what is on that screen? Its needs, its terminal, what waits for it, and its messages over time. */

import { ago, clock, fill, h, keyed, reveal } from "../dom.js";
import { confirmKey } from "../keys.js";
import { needCard, subjectOf } from "../need.js";
import { agentAddress, mark, nameOf, stateLabel, taskAddress, taskLink, word } from "../rows.js";
import { mountScreen } from "../screen.js";
import { senderName, stepWord } from "../task_words.js";

const PHONE = window.matchMedia("(max-width: 719px)");
const PAGE = 30; // tasks of the agent that are shown
const PREVIEW = 300; // characters of a text in the row of a task, at most

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
    let isUnknown = false;
    root.append(h("div", { class: "agent" }, h("div", {}, head), needs, box, work, tabs, panel));

    const draw = () => {
      const row = live.row(id);
      if (!row) return drawMissing();
      tabs.hidden = panel.hidden = false;
      const back = h("a", { class: "button quiet", href: "#/agents", "aria-label": "Back to all agents" }, "‹");
      const address = `#/send?to=${encodeURIComponent(row.id)}`;
      const send = h("a", { class: "button", href: address, "aria-label": `Send a message to ${row.name}` }, "Send");
      fill(head, PHONE.matches ? back : null,
        mark(row.state), h("h1", { class: "agent-name" }, row.name), stateLabel(row),
        h("span", { class: "muted" }, [row.agent_type, row.folder, row.machine].filter(Boolean).join(" · ")),
        h("div", { class: "end" }, send),
        row.role ? h("div", { class: "muted role" }, reveal(row.role)) : null);
      drawNeeds(row);
      drawTerminal(row);
      drawWork(row);
      markSeen(row);
    };

    const drawMissing = () => {
      if (!live.isLive) return fill(head, h("h1", {}, id), h("span", { class: "muted" }, "Connecting…"));
      const named = live.rows.find((row) => row.name === id);
      if (named) return location.replace(agentAddress(named.id)); // a person typed the name that the list has
      const what = isUnknown ? "There is no such agent." : "is not running. Its messages are still here.";
      fill(head, h("h1", {}, id), h("span", { class: "muted" }, what));
      tabs.hidden = panel.hidden = isUnknown;
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
      else if (!context.session.actions.includes("attach")) fill(box, note("This session may not see terminals."));
      else if (way === "away") fill(box, note(`Not reachable: ${row.why}`));
      else if (way === "text") terminal = mountScreen(box, { agent: row.id, context, lines: 200, every: 1000 });
      else openTerminal(row);
    };

    const openTerminal = async (row) => {
      fill(box, note("Opening the terminal…"));
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
      if (row.task) {
        const { id: taskId, from, receipt, text } = row.task;
        lines.push(h("div", { class: "prose" }, h("strong", {}, "works on "), taskLink(taskId),
          ` from ${nameOf(from, live.rows)} (${stepWord(receipt)}): `, reveal(text)));
      }
      const waiting = tasks.filter((task) => task.state === "submitted" && task.id !== row.task?.id).reverse();
      if (row.queue) {
        const items = waiting.map((task) => h("li", {}, taskLink(task.id),
          h("span", { class: "muted" }, `from ${senderName(task, live.rows)}`), h("span", { class: "text" }, reveal(task.text))));
        lines.push(h("div", {}, h("strong", {}, `queue: ${row.queue}`), h("ol", {}, items)));
      }
      for (const { to, task_id: taskId, text } of row.owes) {
        lines.push(h("div", {}, `owes ${nameOf(to, live.rows)} an answer: `, taskLink(taskId), " “", reveal(text), "”"));
      }
      if (row.store_fault) lines.push(h("p", { class: "warning" }, row.store_fault));
      lines.push(h("div", { class: "muted" }, `${word(row.agent_state)}, known from ${row.source || "its host"}`));
      fill(work, lines);
    };

    const drawHistory = () => {
      if (tasks.length === 0) return fill(history, h("li", { class: "muted message" }, "No messages yet."));
      if (shown === "messages") return fill(history, tasks.map((task) => messageOf(task, live.rows)));
      const steps = tasks.flatMap((task) => task.receipts.map((receipt) => ({ task, receipt })));
      steps.sort((one, other) => newestFirst(one.receipt.at, other.receipt.at));
      fill(history, steps.map((step) => stepOf(step, live.rows)));
    };

    const load = async () => {
      try {
        const path = `/dashboard/tasks?agent=${encodeURIComponent(id)}&limit=${PAGE}`;
        ({ tasks } = await api.get(path, { signal: leaving.signal }));
      } catch (error) {
        isUnknown = error.status === 404;
        if (isUnknown) draw();
        else if (!leaving.signal.aborted) context.fail(error);
        return;
      }
      drawHistory();
      const row = live.row(id);
      if (row) drawWork(row);
    };

    /** Whoever has the agent open has its answers before the eyes; only a visible page counts. */
    const markSeen = (row) => {
      const answered = row.needs.filter((need) => need.kind === "done").map((need) => need.asked_at);
      const ended = answered.sort().at(-1) ?? "";
      if (ended <= seenUntil || document.visibilityState !== "visible" || !context.can("read")) return;
      seenUntil = ended;
      context.seen(row.id, ended).catch(context.fail);
    };

    const onTask = ({ task }) => {
      if (task.agent !== id && task.agent_id !== id && task.agent_id !== live.row(id)?.agent_id) return;
      const others = tasks.filter((one) => one.id !== task.id);
      tasks = [task, ...others].sort((one, other) => newestFirst(one.created_at, other.created_at)).slice(0, PAGE);
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
    const offs = [live.on("rows", draw), live.on("task", onTask), live.on("resync", load)];
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

function note(text) {
  return h("p", { class: "muted" }, text);
}

function newestFirst(one, other) {
  return one < other ? 1 : -1;
}

function messageOf(task, rows) {
  return h("li", { class: "message" },
    h("div", { class: "message-head" }, h("strong", {}, senderName(task, rows)), ago(task.created_at), taskLink(task.id),
      h("span", {}, word(task.state)), h("span", {}, stepWord(task.receipt))),
    h("div", { class: "prose" }, reveal(task.text), moreOf(task, task.text)),
    task.answer ? h("div", { class: "prose answer" }, reveal(task.answer), moreOf(task, task.answer)) : null);
}

/** Returns the way to the whole text, if the row of the task has only its beginning. */
function moreOf(task, text) {
  return text.length < PREVIEW ? null : ["… ", h("a", { class: "link", href: taskAddress(task.id) }, "all of it")];
}

function stepOf({ task, receipt: { step, at, source } }, rows) {
  return h("li", { class: "step" }, h("time", { datetime: at }, clock(at)), h("span", {}, stepWord(step)),
    h("span", { class: "text" }, taskLink(task.id), ` ${senderName(task, rows)}: `, reveal(task.text),
      source ? h("span", { class: "muted" }, ` · ${source}`) : null));
}
