/** Agents: who is doing what? Every agent with its state, its work and a small live picture of its screen. */

import { fill, h, keyed } from "../dom.js";
import { nameOf, rowParts } from "../rows.js";
import { mountScreen } from "../screen.js";
import { noAgents } from "./inbox.js";

const EVERY = 2000; // milliseconds between two pictures of a screen

export const view = {
  name: "agents",
  title: "Agents",

  mount(root, context) {
    const { live } = context;
    const cards = h("div", { class: "cards" });
    const count = h("span", { class: "muted" });
    const screens = new Map();
    root.append(h("div", { class: "view-head" }, h("h1", {}, "Agents"), count), cards);

    // A picture costs a request: only cards on the screen have one.
    const watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) open(target);
        else close(target);
      }
    }, { root, rootMargin: "160px" });

    const open = (box) => {
      if (screens.has(box) || box.dataset.terminal !== "true") return;
      fill(box);
      screens.set(box, mountScreen(box, { agent: box.dataset.agent, context, every: EVERY, isSmall: true }));
    };
    const close = (box) => {
      screens.get(box)?.unmount();
      screens.delete(box);
    };

    const make = (row) => {
      const box = h("div", { class: "card-screen", "aria-hidden": "true", "data-agent": row.id });
      const card = h("a", { class: "card", "data-item": true, href: `#/agents/${encodeURIComponent(row.id)}` }, h("div", { class: "row" }), box);
      watcher.observe(box);
      return card;
    };
    const update = (card, row) => {
      const [line, box] = card.children;
      const said = JSON.stringify([row.name, row.state, row.since, row.why, row.queue, row.folder, row.unread, row.owes.length]);
      if (card.dataset.said !== said) {
        card.dataset.said = said;
        line.dataset.state = row.state;
        fill(line, rowParts(row), h("span", { class: "card-foot" }, footOf(row, live)));
      }
      const terminal = String(row.has_terminal && row.state !== "away" && context.session.actions.includes("attach"));
      if (box.dataset.terminal === terminal) return;
      box.dataset.terminal = terminal;
      close(box);
      if (terminal === "false") fill(box, h("p", { class: "muted" }, whyNoScreen(row)));
      else if (box.isConnected) open(box);
    };

    const draw = () => {
      count.textContent = live.rows.length ? `${live.rows.length} running` : "";
      if (live.rows.length === 0) return fill(cards, live.connection.state === "connecting" ? h("p", { class: "empty" }, "Connecting…") : noAgents());
      cards.querySelector(".empty")?.remove();
      keyed(cards, live.rows, (row) => row.id, make, update);
      for (const box of screens.keys()) if (!box.isConnected) close(box);
    };

    const off = live.on("rows", draw);
    draw();
    return {
      unmount() {
        off();
        watcher.disconnect();
        for (const box of screens.keys()) close(box);
      },
    };
  },
};

function footOf(row, live) {
  const parts = [row.agent_type, row.folder, row.machine];
  if (row.unread) parts.push(row.unread === 1 ? "1 new answer" : `${row.unread} new answers`);
  if (row.owes.length) parts.push(`owes ${row.owes.map((one) => nameOf(one.to, live.rows)).join(", ")} an answer`);
  return parts.filter(Boolean).join(" · ");
}

function whyNoScreen(row) {
  if (!row.has_terminal) return "has no terminal";
  return row.state === "away" ? "not reachable" : "this session may not see terminals";
}
