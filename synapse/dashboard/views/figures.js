/**
 * Figures: is it getting better or worse? Three small plots over the last hour or day, and the numbers per agent in a
 * table, which is also what a screen reader reads.
 */

import { fill, h, reveal } from "../dom.js";
import { count, duration, timeOfDay } from "../format.js";
import { amountPerRow, barsOverTime, sparkline, timesPerRow } from "../plot.js";

const REFRESH = 15_000;
const MOST_ROWS = 8;
const LEAST_HEIGHT = 200;
const ROW = 26;
const GAP = 16;
const FRAME = 34; // the border and padding of a card
const SPANS = [[1, "Last hour"], [24, "Last day"]];

export const view = {
  name: "figures",
  title: "Figures",
  mount(root, context, params) {
    const figures = new Figures(root, context);
    figures.show(params.query);
    return { update: ({ query }) => figures.show(query), unmount: () => figures.stop() };
  },
};

class Figures {
  #context;
  #hours = 1;
  #figures = null;
  #loadedAt = "";
  #request = null;
  #timer = 0;
  #ends = [];
  #switch = h("div", { class: "figures-spans", role: "group", "aria-label": "Span of time" });
  #asOf = h("span", { class: "muted figures-as-of" });
  #body = h("div", { class: "figures-body" });

  constructor(root, context) {
    this.#context = context;
    const head = h("div", { class: "figures-head" }, h("h1", {}, "Figures"), this.#switch, this.#asOf);
    fill(root, h("section", { class: "figures" }, head, this.#body));
    const resized = new ResizeObserver(() => this.#render());
    resized.observe(this.#body);
    this.#timer = setInterval(() => document.visibilityState === "visible" && this.#load(), REFRESH);
    this.#ends = [() => resized.disconnect(), context.live.on("connection", ({ state }) => state === "live" && this.#load())];
  }

  show(query) {
    const hours = query.get("hours") === "24" ? 24 : 1;
    if (hours !== this.#hours) this.#figures = null;
    this.#hours = hours;
    fill(this.#switch, ...SPANS.map(([span, label]) =>
      h("a", { class: "figures-span", href: `#/figures?hours=${span}`, "aria-current": span === hours ? "true" : null }, label)));
    this.#render();
    this.#load();
  }

  stop() {
    clearInterval(this.#timer);
    this.#request?.abort();
    for (const end of this.#ends) end();
  }

  async #load() {
    this.#request?.abort();
    const request = (this.#request = new AbortController());
    try {
      this.#figures = await this.#context.api.get(`/dashboard/figures?hours=${this.#hours}`, { signal: request.signal });
      this.#loadedAt = new Date().toISOString();
      this.#render();
    } catch (error) {
      // A refresh that failed leaves the last figures and their time; the page says that it is not connected.
      if (!request.signal.aborted && !this.#figures) this.#context.fail(error);
    }
  }

  #render() {
    const figures = this.#figures;
    if (!figures) return fill(this.#body);
    // Not `figures.to`: the last step ends in the future.
    fill(this.#asOf, `as of ${timeOfDay(this.#loadedAt)}`);
    if (isQuiet(figures.total)) return fill(this.#body, ...emptyState(this.#hours));
    const columns = this.#body.clientWidth >= 900 ? 3 : this.#body.clientWidth >= 620 ? 2 : 1;
    const width = Math.max(240, Math.floor((this.#body.clientWidth - (columns - 1) * GAP) / columns) - FRAME);
    const wide = columns === 2 ? this.#body.clientWidth - FRAME : width;
    fill(this.#body,
      h("div", { class: "figures-plots", "data-columns": columns, style: { "--columns": columns } },
        ...plotsOf(figures, this.#hours, width, wide)),
      tableOf(figures));
  }
}

function isQuiet(total) {
  return messages(total) === 0 && total.finished === 0 && !total.waiting_seconds;
}

function emptyState(hours) {
  return [h("div", { class: "empty" },
    h("h2", {}, `No messages in the last ${hours === 1 ? "hour" : "day"}.`),
    h("p", { class: "muted" }, "Send one, and its way to the answer is measured here."))];
}

function plotsOf(figures, hours, width, wide) {
  const { total, step_seconds: step } = figures;
  const perMinute = total.messages.map((number) => (number * 60) / step);
  const sum = total.messages.reduce((one, other) => one + other, 0);
  const busy = [...figures.agents].sort((one, other) => messages(other) - messages(one)).slice(0, MOST_ROWS);
  const times = busy.filter((row) => row.submitted_p50 !== null || row.answered_p50 !== null);
  const waits = [...figures.agents].filter((row) => row.waiting_seconds > 0)
    .sort((one, other) => other.waiting_seconds - one.waiting_seconds).slice(0, MOST_ROWS);
  const span = hours === 1 ? "hour" : "day";
  const most = Number(Math.max(0, ...perMinute).toFixed(1));
  const medians = [duration(total.submitted_p50), duration(total.answered_p50)];
  return [
    card("Messages per minute", `${count(sum)} in the last ${span}`,
      barsOverTime({
        values: perMinute, from: figures.from, stepSeconds: step, width: wide,
        height: wide === width ? Math.max(LEAST_HEIGHT, times.length * ROW + 64) : LEAST_HEIGHT,
        label: `Messages per minute: ${count(sum)} in the last ${span}, at most ${count(most)} per minute`,
      })),
    card("Time to submitted and to answered", `median ${medians.join(" and ")}`,
      times.length ? timesPerRow({
        rows: times.map((row) => ({
          name: row.agent, first: [row.submitted_p50, row.submitted_p95], second: [row.answered_p50, row.answered_p95],
        })),
        width,
        label: `Median time to submitted ${medians[0]}, to answered ${medians[1]}; per agent in the table`,
      }) : nothing("No message was taken yet."),
      h("p", { class: "plot-legend" }, h("span", { class: "plot-key plot-first" }), "submitted ",
        h("span", { class: "plot-key plot-second" }), "answered ",
        h("span", { class: "muted" }, "dot: median, line: up to 95 %"))),
    card("Time waiting for a person", duration(total.waiting_seconds),
      waits.length ? amountPerRow({
        rows: waits.map((row) => ({ name: row.agent, seconds: row.waiting_seconds })), width,
        label: `Time waiting for a person: ${duration(total.waiting_seconds)} in all; per agent in the table`,
      }) : nothing("No agent had to wait for a person.")),
  ];
}

function messages(row) {
  return row.messages.reduce((one, other) => one + other, 0);
}

function card(title, number, ...content) {
  const caption = h("figcaption", {}, h("h2", {}, title), h("p", { class: "figures-number" }, number));
  return h("figure", { class: "figures-card" }, caption, ...content);
}

function nothing(words) {
  return h("p", { class: "muted figures-nothing" }, words);
}

function tableOf(figures) {
  const head = ["Agent", "Messages", "To submitted", "To answered", "Waited for a person", "Ended", "Failed"];
  const cells = (row) => [
    h("td", {}, sparkline(row.messages), h("span", { class: "figures-count" }, count(messages(row)))),
    h("td", {}, ...times(row.submitted_p50, row.submitted_p95)),
    h("td", {}, ...times(row.answered_p50, row.answered_p95)),
    h("td", {}, duration(row.waiting_seconds)),
    h("td", {}, count(row.finished)),
    h("td", { class: row.failed ? "figures-failed" : null }, count(row.failed)),
  ];
  const bodyRow = (name, row) => h("tr", {}, h("th", { scope: "row" }, h("bdi", {}, ...reveal(name))), ...cells(row));
  return h("div", { class: "figures-table", role: "region", "aria-label": "Figures per agent", tabIndex: 0 }, h("table", {},
    h("caption", {}, "Per agent; times are the median, and what 95 % stay below"),
    h("thead", {}, h("tr", {}, ...head.map((words) => h("th", { scope: "col" }, words)))),
    h("tbody", {}, ...figures.agents.map((row) => bodyRow(row.agent, row))),
    h("tfoot", {}, bodyRow("All", figures.total))));
}

function times(median, high) {
  return [duration(median), median === null || high === null ? null : h("span", { class: "muted" }, ` · ${duration(high)}`)];
}
