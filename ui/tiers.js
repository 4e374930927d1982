// Draws the tiers of a counter: used hits as a bar, the window and the time until its reset.
import { bar } from "./chart.js";
import { el } from "./dom.js";
import { clock, duration, number } from "./format.js";

// The numbers of a tier in words, `passed` seconds after they were read.
export function tierText(tier, passed = 0) {
  const { used, requests, remaining, window_seconds: window, reset_after_seconds: reset } = tier;
  const calendar = tier.calendar ? `, ${tier.calendar} of ${tier.zone} until ${clock(tier.window_end)}` : "";
  const left = Math.max(0, (reset ?? 0) - passed);
  return `${number(used)} of ${number(requests)} used, ${number(remaining)} left; window ${duration(window)}` +
    `${calendar}; resets in ${duration(left < 10 ? Math.ceil(left) : left)}`;
}

// The tiers as a list.
export function tierList(tiers) {
  const items = tiers.map((tier) => el("li", { "data-tier": "" },
    bar(tier.used / tier.requests || (tier.requests === 0 ? 1 : 0)), el("span", {}, tierText(tier))));
  return el("ul", { class: "tiers" }, ...items);
}
