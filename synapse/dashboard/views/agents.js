/**
 * Agents: who is doing what? Every agent with its state, its work and a small live picture of its screen.
 *
 * Wide screens can pin up to six of them. A pinned one is larger; a click or Enter makes it the live terminal until the
 * focus leaves it. The focus alone does not: a terminal takes the Tab key, too, and would catch those who pass by.
 */

import { fill, h, keyed } from "../dom.js";
import { agentAddress, nameOf, rowParts } from "../rows.js";
import { mountScreen } from "../screen.js";
import { noAgents } from "./inbox.js";

const EVERY = 2000; // milliseconds between two pictures of a screen
const EVERY_PINNED = 1000;
const PINS = "synapse.pins";
const MOST_PINS = 6;
const WIDE = window.matchMedia("(min-width: 1200px)");

export const view = {
  name: "agents",
  title: "Agents",

  mount(root, context) {
    const { live } = context;
    const pinned = h("div", { class: "pins" });
    const cards = h("div", { class: "cards" });
    const count = h("span", { class: "muted" });
    const screens = new Map();
    let pins = JSON.parse(localStorage.getItem(PINS) ?? "[]");
    root.append(h("div", { class: "view-head" }, h("h1", {}, "Agents"), count), pinned, cards);

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
      const every = box.closest(".pin") ? EVERY_PINNED : EVERY;
      screens.set(box, mountScreen(box, { agent: box.dataset.agent, context, every, isCard: true }));
    };
    const close = (box) => {
      screens.get(box)?.unmount();
      screens.delete(box);
    };

    const openLive = async (box) => {
      if (box.dataset.terminal !== "true" || box.dataset.live === "true") return;
      box.dataset.live = "true";
      const { mountTerminal } = await import("../terminal.js");
      if (box.dataset.live !== "true" || !box.isConnected) return; // the focus has left meanwhile
      close(box);
      fill(box);
      const terminal = mountTerminal(box, { agent: box.dataset.agent, context, readOnly: false });
      screens.set(box, terminal);
      terminal.focus();
    };
    const closeLive = (box) => {
      box.dataset.live = "false";
      close(box);
      open(box);
    };

    const setPins = (next) => {
      pins = next;
      localStorage.setItem(PINS, JSON.stringify(pins));
      draw();
    };

    const make = (row) => {
      const box = h("div", {
        class: "card-screen", "aria-hidden": "true", "data-agent": row.id, onclick: () => context.openAgent(row.id),
      });
      const pin = h("button", {
        class: "quiet pin-button", "aria-label": `Pin the terminal of ${row.name}`,
        onclick: () => setPins([...pins, row.id]),
      }, "Pin");
      watcher.observe(box);
      return h("div", { class: "card" }, h("a", { class: "row", "data-item": true, href: agentAddress(row.id) }), box, pin);
    };
    const makePin = (row) => {
      const box = h("div", {
        class: "card-screen terminal-box", tabindex: "0", "data-agent": row.id,
        role: "group", "aria-label": `Screen of ${row.name}. Enter opens its terminal here.`,
        onclick: () => openLive(box),
        onkeydown: ({ key, target }) => {
          if (key === "Enter" && target === box) openLive(box);
        },
        onfocusout: ({ relatedTarget }) => {
          if (box.dataset.live === "true" && !box.contains(relatedTarget)) closeLive(box);
        },
      });
      const unpin = h("button", {
        class: "quiet pin-button", "aria-label": `Unpin the terminal of ${row.name}`,
        onclick: () => setPins(pins.filter((id) => id !== row.id)),
      }, "Unpin");
      watcher.observe(box);
      const line = h("a", { class: "row", "data-item": true, href: agentAddress(row.id) });
      return h("div", { class: "card pin" }, line, box, unpin);
    };

    const update = (card, row) => {
      const [line, box, pin] = card.children;
      const said = JSON.stringify({ ...row, needs: null });
      if (card.dataset.said !== said) {
        card.dataset.said = said;
        line.dataset.state = row.state;
        fill(line, rowParts(row), h("span", { class: "card-foot" }, footOf(row, live)));
      }
      const maySee = row.has_terminal && row.state !== "away" && context.session.actions.includes("attach");
      pin.hidden = !card.matches(".pin") && (!maySee || pins.length >= MOST_PINS);
      if (box.dataset.terminal === String(maySee)) return;
      box.dataset.terminal = String(maySee);
      close(box);
      if (!maySee) fill(box, h("p", { class: "muted" }, whyNoScreen(row)));
      else if (box.isConnected) open(box);
    };

    const draw = () => {
      const away = live.rows.filter((row) => row.state === "away").length;
      count.textContent = live.rows.length ? `${live.rows.length - away} running${away ? `, ${away} away` : ""}` : "";
      if (live.rows.length === 0) {
        fill(pinned);
        return fill(cards, live.isLive ? noAgents() : h("p", { class: "empty" }, "Connecting…"));
      }
      cards.querySelector(".empty")?.remove();
      const large = WIDE.matches ? pins.map((id) => live.row(id)).filter(Boolean) : [];
      keyed(pinned, large, (row) => row.id, makePin, update);
      keyed(cards, live.rows.filter((row) => !large.includes(row)), (row) => row.id, make, update);
      for (const box of [...screens.keys()]) if (!box.isConnected) close(box);
    };

    const off = live.on("rows", draw);
    WIDE.addEventListener("change", draw);
    draw();
    return {
      unmount() {
        off();
        WIDE.removeEventListener("change", draw);
        watcher.disconnect();
        for (const box of [...screens.keys()]) close(box);
      },
    };
  },
};

function footOf(row, live) {
  const parts = [row.agent_type, row.folder, row.machine];
  if (row.unread) parts.push(`${row.unread} not seen`);
  if (row.owes.length) parts.push(`owes ${row.owes.map((one) => nameOf(one.to, live.rows)).join(", ")} an answer`);
  return parts.filter(Boolean).join(" · ");
}

function whyNoScreen(row) {
  if (!row.has_terminal) return "has no terminal";
  return row.state === "away" ? "not reachable" : "this session may not see terminals";
}
