/** Numbers and times as people read them. Pure. */

/**
 * Returns a length of time with its unit: "40 ms", "1.2 s", "3 min 5 s", "2 h 10 min", "3 days".
 * @param {number|null} seconds null when there is no value
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${(Math.round(seconds * 10) / 10).toString()} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(whole, 60, "min", 1, "s", whole < 600);
  if (whole < 2 * 86400) return pair(whole, 3600, "h", 60, "min", true);
  return `${Math.round(whole / 86400)} days`;
}

/**
 * Returns the time of day of an instant, with seconds: "21:04:07".
 * @param {string} instant RFC 3339
 */
export function timeOfDay(instant) {
  const at = new Date(instant);
  return Number.isNaN(at.getTime()) ? "" : [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
}

/**
 * Returns the day of an instant for a heading: "Monday, 16 November".
 * @param {string} instant RFC 3339
 */
export function dayOf(instant) {
  const at = new Date(instant);
  if (Number.isNaN(at.getTime())) return "";
  return at.toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long" });
}

/**
 * Returns an instant for a list: the time today, else the day and time.
 * @param {string} instant RFC 3339
 * @param {Date} now
 */
export function shortTime(instant, now) {
  const at = new Date(instant);
  if (Number.isNaN(at.getTime())) return "";
  if (at.toDateString() === now.toDateString()) return timeOfDay(instant);
  const year = at.getFullYear() === now.getFullYear() ? undefined : "numeric";
  const day = at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year });
  return `${day}, ${two(at.getHours())}:${two(at.getMinutes())}`;
}

/**
 * Returns the seconds from one instant to another.
 * @param {string} from RFC 3339
 * @param {string} to RFC 3339
 */
export function secondsBetween(from, to) {
  return (Date.parse(to) - Date.parse(from)) / 1000;
}

/**
 * Returns a count with separators: "100,000".
 * @param {number} number
 */
export function count(number) {
  return Number(number).toLocaleString("en-GB");
}

/**
 * Returns a count of a thing, with the thing in its number: "1 message", "3 messages".
 * @param {number} number
 * @param {string} thing
 */
export function counted(number, thing) {
  return `${count(number)} ${thing}${number === 1 ? "" : "s"}`;
}

/**
 * Returns a size in bytes with its unit: "820 B", "1.2 kB", "3.4 MB".
 * @param {number} bytes
 */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const [value, unit] = bytes < 1_000_000 ? [bytes / 1000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

function pair(seconds, large, largeUnit, small, smallUnit, withSmall) {
  const most = Math.floor(seconds / large);
  const rest = Math.floor((seconds - most * large) / small);
  return withSmall && rest ? `${most} ${largeUnit} ${rest} ${smallUnit}` : `${most} ${largeUnit}`;
}

function two(number) {
  return String(number).padStart(2, "0");
}
