/** Small plots as SVG: bars over time, and a row per agent with times. The numbers stand beside them in a table. */

import { reveal, svg } from "./dom.js";
import { count, duration } from "./format.js";

const LEFT = 44;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 24;
const NAME_WIDTH = 120;
const ROW = 26;
const TIME_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800];
const DECADES = [0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 36000, 360000];

/**
 * Returns the ends of an axis from zero: the largest value shown, and the values that get a line.
 *
 * @param {number} largest
 * @returns {{top: number, ticks: number[]}}
 */
export function countAxis(largest) {
  if (!(largest > 0)) return { top: 1, ticks: [0, 1] };
  const magnitude = 10 ** Math.floor(Math.log10(largest));
  const step = [0.2, 0.5, 1, 2, 5].map((factor) => factor * magnitude).find((one) => largest / one <= 4) ?? magnitude * 5;
  const top = Math.ceil(largest / step - 1e-9) * step;
  const ticks = Array.from({ length: Math.round(top / step) + 1 }, (_, index) => Number((index * step).toPrecision(6)));
  return { top, ticks };
}

/**
 * Returns the ends of an axis of lengths of time, from zero.
 *
 * @param {number} largest seconds
 * @returns {{top: number, ticks: number[]}}
 */
export function timeAxis(largest) {
  const step = TIME_STEPS.find((one) => largest / one <= 4) ?? TIME_STEPS.at(-1) * Math.ceil(largest / TIME_STEPS.at(-1) / 4);
  const steps = Math.max(1, Math.ceil(largest / step));
  return { top: steps * step, ticks: Array.from({ length: steps + 1 }, (_, index) => index * step) };
}

/**
 * Returns the ends of a logarithmic axis of lengths of time that holds all values.
 *
 * @param {number[]} values seconds
 * @returns {{low: number, high: number, ticks: number[]}}
 */
export function logAxis(values) {
  const positive = values.filter((value) => value > 0);
  const least = positive.length ? Math.min(...positive) : 0.1;
  const most = positive.length ? Math.max(...positive) : 10;
  const first = Math.max(0, DECADES.findLastIndex((tick) => tick <= least));
  const found = DECADES.findIndex((tick) => tick >= most);
  const last = Math.max(found < 0 ? DECADES.length - 1 : found, first + 1);
  return { low: DECADES[first], high: DECADES[last], ticks: DECADES.slice(first, last + 1) };
}

/**
 * Returns bars over time.
 *
 * @param {{values: number[], from: string, stepSeconds: number, width: number, height: number, label: string}} plot
 * @returns {SVGElement}
 */
export function barsOverTime({ values, from, stepSeconds, width, height, label }) {
  const { top, ticks } = countAxis(Math.max(0, ...values));
  const [right, bottom] = [width - RIGHT, height - BOTTOM];
  const x = (index) => LEFT + ((right - LEFT) * index) / Math.max(1, values.length);
  const y = (value) => bottom - ((bottom - TOP) * value) / top;
  const picture = frame(width, height, label);
  for (const tick of ticks) {
    picture.append(line("plot-grid", LEFT, y(tick), right, y(tick)), text("plot-tick", LEFT - 6, y(tick) + 4, count(tick), "end"));
  }
  const start = Date.parse(from);
  for (const at of clockTicks(start, values.length * stepSeconds, width)) {
    const place = LEFT + ((right - LEFT) * (at - start)) / (values.length * stepSeconds * 1000);
    const words = text("plot-tick", Math.min(place, width - 16), height - 6, hourOf(at), "middle");
    picture.append(line("plot-grid", place, bottom, place, bottom + 4), words);
  }
  const space = values.length > 90 ? 0 : 1;
  values.forEach((value, index) => {
    if (!(value > 0)) return;
    const wide = Math.max(1, x(index + 1) - x(index) - space);
    picture.append(svg("rect", { class: "plot-bar", x: x(index), y: y(value), width: wide, height: Math.max(1, bottom - y(value)) }));
  });
  picture.append(line("plot-axis", LEFT, bottom, right, bottom));
  return picture;
}

/**
 * Returns a row per agent with two times on a logarithmic axis: each a mark at the median, with a line to the 95th
 * percentile.
 *
 * @param {{rows: Array<{name: string, first: number[], second: number[]}>, width: number, label: string}} plot
 *   `first` and `second` are [p50, p95], null where there is none
 * @returns {SVGElement}
 */
export function timesPerRow({ rows, width, label }) {
  const known = rows.flatMap(({ first, second }) => [...first, ...second]).filter((value) => value !== null);
  const { low, high, ticks } = logAxis(known);
  const height = rows.length * ROW + TOP + BOTTOM;
  const [left, right] = [nameWidth(width), width - RIGHT - 12];
  const x = (value) => left + ((right - left) * Math.log(Math.max(low, value) / low)) / Math.log(high / low);
  const picture = frame(width, height, label);
  addTimes(picture, ticks, x, height);
  rows.forEach(({ name, first, second }, index) => {
    const middle = TOP + ROW * (index + 0.5);
    picture.append(rowName(name, left, middle));
    for (const [kind, [median, high95], shift] of [["first", first, -5], ["second", second, 5]]) {
      if (median === null) continue;
      if (high95 !== null) picture.append(line(`plot-reach plot-${kind}`, x(median), middle + shift, x(high95), middle + shift));
      picture.append(svg("circle", { class: `plot-dot plot-${kind}`, cx: x(median), cy: middle + shift, r: 4 }));
    }
  });
  return picture;
}

/**
 * Returns a bar per agent on an axis of lengths of time.
 *
 * @param {{rows: Array<{name: string, seconds: number}>, width: number, label: string}} plot
 * @returns {SVGElement}
 */
export function amountPerRow({ rows, width, label }) {
  const { top, ticks } = timeAxis(Math.max(1, ...rows.map(({ seconds }) => seconds)));
  const height = rows.length * ROW + TOP + BOTTOM;
  const [left, right] = [nameWidth(width), width - RIGHT - 16];
  const x = (value) => left + ((right - left) * value) / top;
  const picture = frame(width, height, label);
  addTimes(picture, ticks, x, height);
  rows.forEach(({ name, seconds }, index) => {
    const middle = TOP + ROW * (index + 0.5);
    picture.append(rowName(name, left, middle));
    const long = Math.max(2, x(seconds) - left);
    if (seconds > 0) picture.append(svg("rect", { class: "plot-bar plot-wait", x: left, y: middle - 6, width: long, height: 12 }));
  });
  picture.append(line("plot-axis", left, TOP, left, height - BOTTOM));
  return picture;
}

/**
 * Returns a line of bars without axes, for a row of a table.
 *
 * @param {number[]} values
 * @returns {SVGElement}
 */
export function sparkline(values) {
  const [width, height] = [96, 20];
  const most = Math.max(1, ...values);
  const step = width / Math.max(1, values.length);
  const wide = Math.max(0.75, step - 0.4);
  const picture = svg("svg", { class: "plot-spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  values.forEach((value, index) => {
    const tall = (height * value) / most;
    if (value > 0) picture.append(svg("rect", { class: "plot-bar", x: index * step, y: height - tall, width: wide, height: tall }));
  });
  return picture;
}

function frame(width, height, label) {
  return svg("svg", { class: "plot", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
}

/** Adds a line for each tick, and its time below where the one before leaves room. */
function addTimes(picture, ticks, x, height) {
  let free = 0;
  for (const tick of ticks) {
    picture.append(line("plot-grid", x(tick), TOP, x(tick), height - BOTTOM));
    const words = duration(tick);
    const half = words.length * 3.2;
    if (x(tick) - half < free) continue;
    free = x(tick) + half + 6;
    picture.append(text("plot-tick", x(tick), height - 6, words, "middle"));
  }
}

function nameWidth(width) {
  return Math.min(NAME_WIDTH, Math.round(width * 0.32));
}

function rowName(name, left, middle) {
  const most = Math.floor((left - 12) / 7);
  // Text of SVG has no marks: hidden characters are written out.
  const letters = [...reveal(name).map((node) => node.textContent).join("")];
  const shown = letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
  return text("plot-name", left - 8, middle + 4, shown, "end");
}

/** Returns the full hours or tens of minutes inside a span, as many as have room. */
function clockTicks(start, seconds, width) {
  const most = Math.max(2, Math.floor(width / 72));
  const step = [300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600].find((one) => seconds / one <= most) ?? 43200;
  // Local time, so that a day begins at midnight where the person is.
  const shift = new Date(start).getTimezoneOffset() * 60_000;
  const first = Math.ceil((start - shift) / (step * 1000)) * step * 1000 + shift;
  const number = Math.floor((start + seconds * 1000 - first) / (step * 1000)) + 1;
  return Array.from({ length: Math.max(0, number) }, (_, index) => first + index * step * 1000);
}

function hourOf(time) {
  const at = new Date(time);
  return `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`;
}

function line(kind, x1, y1, x2, y2) {
  return svg("line", { class: kind, x1, y1, x2, y2 });
}

function text(kind, x, y, words, anchor) {
  return svg("text", { class: kind, x, y, "text-anchor": anchor }, words);
}
