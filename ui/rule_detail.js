// What opens below a rule: a chart of ten minutes, its facts, its nearest counters and its temporary changes.
import { api, withQuery } from "./api.js";
import { bar, columns, peak } from "./chart.js";
import { allChanges, changeForm, changeList } from "./changes.js";
import { el, facts, table, value } from "./dom.js";
import { clock, cut, descriptorOf, duration, historyText, isChangeOf, link, number, percent } from "./format.js";

const OUTCOMES = ["within", "near", "over", "fallback"];
const HEADS = ["Ago", "Passed", "Near the limit", "Denied", "By the fallback"];
const NEAREST = 20;

// The chart of a history, with a table of its numbers.
function figure(history) {
  const rows = () => {
    const length = history?.within?.length ?? 0;
    return Array.from({ length }, (_, at) => length - 1 - at).map((at) => ({
      cells: [duration((length - at) * 10), ...OUTCOMES.map((name) => number(history[name]?.[at]))],
    }));
  };
  const numbers = el("details", { ontoggle: () => {
    // 60 rows are drawn on demand.
    if (numbers.open && numbers.childElementCount === 1) numbers.append(table("Decisions per 10 s", HEADS, rows()));
  } }, el("summary", {}, "The numbers as a table"));
  return el("figure", {}, columns(history ?? {}, historyText(history), { kind: "large" }),
    el("figcaption", {}, el("span", {}, "ten minutes ago"),
      el("span", {}, `highest column: ${number(peak(history ?? {}))} decisions in 10 s`), el("span", {}, "now")),
    numbers);
}

// The counters of a rule that are nearest their limit.
function nearest(rule) {
  const place = el("div");
  const read = async () => {
    const { domain, rule: name } = rule;
    try {
      const page = await api(withQuery("usage", { domain, rule: name, limit: NEAREST }));
      const selector = page.selector ?? page.rule;
      const rows = page.counters.map(({ values, cut: isCut, share, tiers }) => {
        const texts = Object.entries(values).map(([key, text]) => `${key}=${text}`).join(",");
        const descriptor = isCut ? null : descriptorOf(selector, values);
        const shown = value(texts || "all requests");
        const { used, requests, reset_after_seconds: reset } = tiers[0] ?? {};
        return { cells: [
          descriptor === null ? shown : el("a", { href: link("counter", { domain, descriptor }) }, shown),
          el("span", {}, bar(share), percent(share)), `${number(used)} of ${number(requests)}`, duration(reset),
        ] };
      });
      const heads = ["Counter", "Fullest window", "Used, first window", "Resets in"];
      place.replaceChildren(rows.length > 0
        ? el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nearest their limit" },
          table("Counters nearest their limit", heads, rows))
        : el("p", {}, "No counter of this rule has hits."));
    } catch (error) {
      place.replaceChildren(el("p", { class: "message warning" }, cut(error.message, 1000)));
    }
  };
  const again = el("button", { type: "button", onclick: read }, "Read again");
  return { node: el("div", {}, el("h3", {}, "Nearest their limit"), place, el("p", {}, again)), read };
}

export function ruleDetail(rule) {
  const { domain, rule: name } = rule;
  const chart = el("div");
  const about = el("div");
  const usage = rule.usage ? nearest(rule) : null;
  const changes = changeList("Temporary changes", readChanges);
  const limited = link("limited", { domain, rule: name });
  const form = el("details", { open: true }, el("summary", {}, "Change it for a time"),
    changeForm({ domain, rule: name }, readChanges));
  const node = el("div", { "data-detail": name }, chart, about,
    el("p", {}, el("a", { href: limited }, "Counters of this rule that are limited now")),
    usage?.node, changes.node, form);
  let drawn = "";
  let current = rule;

  async function readChanges() {
    // Without the token there is no list, and the form says so.
    const all = await allChanges();
    if (all) changes.set(all.filter((one) => isChangeOf(one, current)));
  }

  function update(next) {
    current = next;
    const isOpen = chart.querySelector("details")?.open;
    // The table of numbers stays as it is while it is open.
    if (!isOpen) chart.replaceChildren(figure(next.history));
    const rows = [
      ["limit", value(next.limit ?? "", 300)],
      ["algorithm", `${next.algorithm}, mode ${next.mode}`],
      ["denied since", next.denied_since ? clock(next.denied_since) : "no denial in the last 10 s"],
      ["file", value(next.location ?? "", 300)],
      ...(next.selector ? [["selector", value(next.selector, 300)]] : []),
    ];
    const shape = JSON.stringify([next.limit, next.denied_since, next.location, next.selector]);
    if (shape !== drawn) about.replaceChildren(facts(rows));
    drawn = shape;
  }

  update(rule);
  return {
    node,
    update,
    refresh() {
      readChanges();
      usage?.read();
    },
  };
}
