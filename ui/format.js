// Writes numbers, durations, times and texts of requests for people. Pure functions.

// Longest text of a request in a view, in characters.
export const TEXT_MAX = 120;

// Characters that are invisible, that end lines, or that change the order or direction of text: control
// characters, marks of direction, zero-width characters, tags, and halves of pairs.
const SPECIAL =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff]|[\u{e0000}-\u{e0fff}]/gu;

// `text` with each special character as `\u{..}`, as in the messages of weir.
export function visible(text) {
  return String(text).replace(SPECIAL, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

// The start of `text` as `visible` writes it, with the whole length if it is longer than `max` characters.
export function cut(text, max = TEXT_MAX) {
  const whole = String(text);
  // A character has at most two units, so a long text is not split as a whole.
  const start = Array.from(whole.slice(0, 2 * max + 2));
  if (start.length <= max) return visible(whole);
  return `${visible(start.slice(0, max).join(""))}\u2026 (${number(Array.from(whole).length)} characters)`;
}

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// A whole number with all digits, or a dash if it is not known.
export function number(value) {
  return isNumber(value) ? WHOLE.format(value) : "\u2013";
}

// A rate per second, with three digits.
export function rate(value) {
  if (!isNumber(value)) return "\u2013";
  return value >= 1000 ? WHOLE.format(Math.round(value)) : SHORT.format(value);
}

export function percent(share) {
  return isNumber(share) ? `${SHORT.format(share * 100)} %` : "\u2013";
}

export function milliseconds(value) {
  return isNumber(value) ? `${SHORT.format(value)} ms` : "\u2013";
}

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// A duration in at most two units: `2 d 3 h`, `41 s`.
export function duration(seconds) {
  if (!isNumber(seconds)) return "\u2013";
  if (seconds > 0 && seconds < 10) return `${SHORT.format(seconds)} s`;
  let rest = Math.round(seconds);
  const parts = [];
  for (const [unit, length] of UNITS) {
    const count = Math.floor(rest / length);
    if (count > 0 || (unit === "s" && parts.length === 0)) parts.push(`${count} ${unit}`);
    rest -= count * length;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

const two = (value) => String(value).padStart(2, "0");

// An instant by the clock and the zone of the browser: the time, with the date if it is another day.
export function clock(text, now = new Date()) {
  const at = new Date(text ?? "");
  if (Number.isNaN(at.getTime())) return "\u2013";
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return at.toDateString() === now.toDateString() ? time : `${day} ${time}`;
}

// Whether a temporary change is of the rule of a row. Rules can share a name, and a change of a removed rule has
// its selector as `rule`, so the selectors are compared.
export function isChangeOf(change, { domain, rule, selector }) {
  return change.rule !== undefined && change.domain === domain
    && (change.selector ?? change.rule) === (selector ?? rule);
}

// An address of a view of the page.
export function link(view, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null);
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query && `?${query}`}`;
}

// The view and the parameters of an address; without a name, the view is empty.
export function parseHash(hash) {
  if (!hash.startsWith("#/")) return { view: "", params: new URLSearchParams() };
  const [view, ...query] = hash.slice(2).split("?");
  return { view, params: new URLSearchParams(query.join("?")) };
}

// The numbers of a limit as `weir change` reads them: `10`, `10:20` with a burst, `5,100` per window.
// Throws an error that says what to write.
export function parseLimit(text) {
  const tiers = text.split(",").map((part) => {
    const numbers = part.trim().split(":").map((one) => (/^\d+$/.test(one.trim()) ? Number(one) : NaN));
    const fits = numbers.length <= 2 && numbers.every((one) => Number.isSafeInteger(one));
    if (!fits) throw new Error("write the limit as 10, as 10:20 with a burst, or as 5,100 for two windows");
    const [requests, burst] = numbers;
    return burst === undefined ? { requests } : { requests, burst };
  });
  return tiers.length === 1 ? tiers[0] : tiers;
}

// The parts of a selector or descriptor: at commas, and each at its first `=`. A backslash escapes the next
// character. `pattern` is true for a part that accepts several values.
function parts(text) {
  const all = [{ key: "", value: null, raw: "" }];
  for (let at = 0; at < text.length; at++) {
    const part = all[all.length - 1];
    let c = text[at];
    if (c === ",") {
      all.push({ key: "", value: null, raw: "" });
      continue;
    }
    if (c === "=" && part.value === null) {
      part.value = "";
      continue;
    }
    if (part.value !== null) part.raw += c;
    if (c === "\\") {
      c = text[++at] ?? "\\";
      if (part.value !== null) part.raw += c;
    }
    if (part.value === null) part.key += c;
    else part.value += c;
  }
  return all;
}

const escapeKey = (text) => text.replace(/[\\,=]/g, "\\$&");
const escapeValue = (text) => text.replace(/[\\,]/g, "\\$&");

// The descriptor of a counter at /usage, from the selector of its rule and its values by column; null if the
// values do not give every entry, as with templates, expressions and networks.
export function descriptorOf(selector, values) {
  const entries = [];
  for (const { key, value, raw } of parts(selector)) {
    const isPattern = value === null || /^(template|regex|cidr):/.test(raw) || value.includes("*");
    const text = Object.hasOwn(values, key) ? values[key] : isPattern ? null : value;
    // A key with an escaped `=` cannot be written as a descriptor.
    if (text === null || key.includes("=")) return null;
    entries.push(`${escapeKey(key)}=${escapeValue(text)}`);
  }
  const counted = Object.keys(values).every((name) => parts(selector).some(({ key }) => key === name));
  return counted ? entries.join(",") : null;
}

// The sums of a history of ten minutes in words.
export function historyText(history) {
  const sum = (ticks) => (ticks ?? []).reduce((total, one) => total + (one ?? 0), 0);
  const { within, near, over, fallback } = history ?? {};
  const known = (within ?? []).some((one) => one !== null);
  if (!known) return "last ten minutes: no decision is recorded";
  return `last ten minutes: ${number(sum(within))} passed, ${number(sum(near))} near the limit, ` +
    `${number(sum(over))} denied, ${number(sum(fallback))} by the fallback`;
}
