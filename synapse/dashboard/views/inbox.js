/** Inbox: does anybody need me? Every need as a whole card; on a phone a list, and one card at a time. */

import { fill, h } from "../dom.js";
import { confirmKey } from "../keys.js";
import { needCard, settledBy, subjectOf } from "../need.js";
import { needAddress, needsOf, rowParts, stateOfNeed } from "../rows.js";

const PHONE = window.matchMedia("(max-width: 719px)");

export const view = {
  name: "inbox",
  title: "Inbox",

  mount(root, context, params) {
    const { api, live } = context;
    const list = h("div", { class: "needs-list" });
    const heading = h("h1", {}, "Inbox");
    const back = h("a", { class: "button quiet", href: "#/inbox" }, "‹ Inbox");
    const head = h("div", { class: "view-head" }, heading);
    const notices = noticesButton(context.notices);
    let chosen = params.query.get("need") ?? "";
    const cards = new Map();
    root.append(head, list);

    const draw = () => {
      const needs = needsOf(live.rows);
      const open = new Set(needs.map((need) => need.id));
      const focused = document.activeElement?.closest?.(".need");
      const focusedAt = [...list.children].indexOf(focused);
      for (const [id, card] of cards) if (!open.has(id)) vanish(id, card);
      if (PHONE.matches && !chosen) return drawList(needs);
      const one = PHONE.matches && chosen;
      fill(head, ...(one ? [back] : [heading, h("span", { class: "muted" }, sentence(needs.length)), notices]));
      const shown = one ? needs.filter((need) => need.id === chosen) : needs;
      const elements = shown.map((need) => cardOf(need).element);
      const gone = [...list.querySelectorAll(".need.gone")];
      place(list, [...gone, ...elements]);
      if (focused && !focused.isConnected) (list.children[focusedAt] ?? list.lastElementChild)?.focus();
      if (shown.length === 0) list.append(...empty(live, one));
    };

    const drawList = (needs) => {
      fill(head, heading, h("span", { class: "muted" }, sentence(needs.length)), notices);
      fill(list, needs.map((need) => {
        const state = stateOfNeed(need.kind);
        const why = need.detail.startsWith(need.title) ? need.detail : `${need.title}  ${need.detail}`;
        return h("a", { class: "row", "data-item": true, "data-state": state, href: needAddress(need.id) },
          rowParts({ name: need.name, state, since: need.asked_at, why }));
      }));
      if (needs.length === 0) fill(list, empty(live, false));
    };

    const cardOf = (need) => {
      const said = JSON.stringify({ ...need, task: live.row(need.agent)?.task?.text });
      const card = cards.get(need.id);
      if (card?.said === said) return card;
      // A field that a person types into stays, even if a word of the question changed.
      if (card?.element.querySelector("textarea:focus")) return card;
      const made = Object.assign(needCard(need, context), { need, said });
      if (card) card.element.replaceWith(made.element);
      cards.set(need.id, made);
      return made;
    };

    const vanish = async (id, card) => {
      cards.delete(id);
      if (!card.element.isConnected || card.element.classList.contains("gone")) return;
      if (card.settled || card.need.kind === "done") {
        if (id === chosen) return context.navigate("#/inbox");
        return card.element.remove();
      }
      card.end("is not open any more");
      const by = await settledBy(card.need, api).catch(() => ""); // it is settled, even if its task cannot be read
      if (by && card.element.isConnected) card.end(by);
      context.announce(`${card.need.name}: ${card.need.title} ${by || "is not open any more"}`);
    };

    const current = () => {
      const element = document.activeElement?.closest?.(".need") ?? list.querySelector(".need:not(.gone)");
      return [...cards.values()].find((card) => card.element === element);
    };
    const decide = async (key, label, act) => {
      const card = current();
      if (!card?.[act]) return;
      card.element.focus();
      if (!context.can("approve")) return;
      const { need } = card;
      if (await confirmKey(key, `${label} this for ${need.name}?`, ...subjectOf(need))) card[act]();
    };

    const choose = (id) => {
      chosen = id;
      fill(list);
      draw();
      cards.get(chosen)?.element.focus({ preventScroll: PHONE.matches });
    };
    const onSize = () => choose(chosen);
    PHONE.addEventListener("change", onSize);
    const offs = [live.on("rows", draw)];
    choose(chosen);

    return {
      unmount() {
        PHONE.removeEventListener("change", onSize);
        for (const off of offs) off();
      },
      update: (next) => choose(next.query.get("need") ?? ""),
      keys: { a: () => decide("a", "Allow", "allow"), d: () => decide("d", "Deny", "deny") },
    };
  },
};

/** Returns the switch for browser notifications; none where the browser has no notifications. */
function noticesButton(notices) {
  if (notices.state === "missing") return null;
  const button = h("button", { class: "quiet end" });
  const show = () => {
    button.textContent = notices.state === "blocked" ? "Notifications are blocked" : `Notify me: ${notices.state}`;
    button.disabled = notices.state === "blocked";
    button.title = button.disabled ? "Allow notifications for this address in the browser's settings." : "";
    button.setAttribute("aria-pressed", String(notices.state === "on"));
  };
  button.addEventListener("click", async () => {
    await notices.toggle();
    show();
  });
  show();
  return button;
}

function place(list, elements) {
  elements.forEach((element, index) => {
    if (list.children[index] !== element) list.insertBefore(element, list.children[index] ?? null);
  });
  while (list.children.length > elements.length) list.lastElementChild.remove();
}

function sentence(count) {
  if (count === 0) return "";
  return count === 1 ? "1 thing needs you" : `${count} things need you`;
}

function empty(live, isOne) {
  if (live.connection.state === "connecting") return [h("p", { class: "empty" }, "Connecting…")];
  if (isOne) {
    const back = h("a", { class: "link", href: "#/inbox" }, "Back to the Inbox");
    return [h("div", { class: "empty" }, h("h2", {}, "This is settled."), back)];
  }
  if (live.rows.length === 0) return [noAgents()];
  const away = live.rows.filter((row) => row.state === "away").map((row) => row.name);
  return [h("div", { class: "empty" }, h("h2", {}, "Nobody needs you."),
    away.length ? h("p", {}, `Not known of ${away.join(", ")}: away.`) : null,
    h("p", {}, "Questions, messages in doubt, failures and new answers of your agents appear here."))];
}

/** Returns how to start a first agent. */
export function noAgents() {
  return h("div", { class: "empty" }, h("h2", {}, "No agents yet."),
    h("p", {}, "Start one in a terminal, in the folder it should work in:"),
    h("pre", {}, "synapse claude\nsynapse start codex --name reviewer"));
}
