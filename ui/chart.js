// Draws histories and shares as SVG. Colours are classes of the stylesheet.
import { svg } from "./dom.js";

// The outcomes of a history, from the bottom of a column to its top.
export const OUTCOMES = ["over", "near", "within", "fallback"];

const HEIGHT = 100;

// The sum of each column; null where nothing is known.
function sums(series) {
  const length = Math.max(0, ...OUTCOMES.map((name) => series[name]?.length ?? 0));
  return Array.from({ length }, (_, at) => {
    const known = OUTCOMES.map((name) => series[name]?.[at] ?? null).filter((one) => one !== null);
    return known.length > 0 ? known.reduce((sum, one) => sum + one, 0) : null;
  });
}

// The largest sum of a column.
export const peak = (series) => Math.max(0, ...sums(series).map((sum) => sum ?? 0));

// The outline of the columns of each outcome, as a path. `max` is the number at the top.
export function paths(series, max) {
  const below = sums(series).map(() => 0);
  return OUTCOMES.map((name) => {
    let path = "";
    for (const [at, count] of (series[name] ?? []).entries()) {
      if (!count || !(max > 0)) continue;
      const size = (Math.min(count, max) / max) * HEIGHT;
      const bottom = HEIGHT - below[at];
      below[at] += size;
      path += `M${at} ${bottom.toFixed(2)}v${(-size).toFixed(2)}h0.9v${size.toFixed(2)}z`;
    }
    return { name, path };
  });
}

// Columns of outcomes. `text` is the alternative in words.
export function columns(series, text, { max = peak(series), kind = "spark" } = {}) {
  const width = Math.max(1, sums(series).length);
  const drawn = paths(series, max).filter(({ path }) => path !== "");
  const box = { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none" };
  return svg("svg", { class: `chart ${kind}`, role: "img", "aria-label": text, ...box },
    ...drawn.map(({ name, path }) => svg("path", { class: name, d: path })));
}

// A bar of a share from 0 to 1. The text beside it has the numbers.
export function bar(share) {
  const width = Math.max(0, Math.min(1, share || 0)) * 100;
  const kind = share >= 1 ? "over" : share >= 0.8 ? "near" : "within";
  const box = { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" };
  return svg("svg", { class: "chart share", ...box },
    svg("rect", { class: "track", width: 100, height: 6 }), svg("rect", { class: kind, width, height: 6 }));
}
