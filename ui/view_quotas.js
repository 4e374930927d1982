// The view of the limits that RLQS divides, with the share of each holder.
import { api, poller } from "./api.js";
import { bar } from "./chart.js";
import { $, el, setError, setMessage, setState, table, value } from "./dom.js";
import { duration, link, number, percent, rate } from "./format.js";

const HEADS = ["Holder", "Share", "Per second", "Could use"];
const KINDS = { envoy: "bucket of an Envoy", local: "this instance, for ShouldRateLimit" };

function holder({ holder: name, kind, share, per_second: each, want }) {
  return { cells: [
    el("span", {}, value(name, 60), el("span", { class: "place" }, KINDS[kind] ?? kind)),
    el("span", {}, bar(share), percent(share)), rate(each),
    want === null ? "an equal part" : percent(want),
  ] };
}

function quota(one) {
  const { domain, rule, holders } = one;
  const less = holders.length < one.holder_count
    ? `The ${number(holders.length)} largest of ${number(one.holder_count)} holders.` : "";
  const reserved = one.reserved > 0 ? `${percent(one.reserved)} is reserved, mostly for lost Envoys. ` : "";
  return el("article", { class: "card", "data-rule": rule },
    el("h3", {}, value(rule), " in ", value(domain)),
    el("p", {}, `${number(one.requests)} per ${duration(one.window_seconds)}; demand ` +
      `${rate(one.demand_per_second)} per s. `, el("a", { href: link("rules", { domain, rule }) }, "Open the rule")),
    el("p", {}, bar(one.assigned), `${percent(one.assigned)} of the limit is assigned at this instance. ${reserved}${less}`),
    el("p", {}, "Counter ", value(one.key, 200)),
    table("Shares by holder", HEADS, holders.map(holder)));
}

export function quotasView(section) {
  const list = $("quotas-list");
  let drawn = "";

  async function refresh(signal) {
    try {
      const page = await api("quotas?limit=100", { signal });
      const shape = JSON.stringify(page);
      // The links keep the focus until they are left.
      if (shape !== drawn && !list.contains(document.activeElement)) {
        drawn = shape;
        const less = page.quotas.length < page.total
          ? el("p", {}, `${number(page.quotas.length)} of ${number(page.total)} limits.`) : "";
        list.replaceChildren(less, ...page.quotas.map(quota));
      }
      setMessage(section, page.total > 0 ? "" : "No limit is divided now.");
      setState(section, page.total > 0 ? "ready" : "empty");
    } catch (error) {
      if (!signal.aborted) setError(section, error);
    }
  }

  const poll = poller(5, refresh);
  return {
    show() {
      delete section.dataset.state;
      poll.start();
    },
    hide: () => poll.stop(),
    token() {
      delete section.dataset.state;
      poll.now();
    },
  };
}
