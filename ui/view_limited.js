// The view of the counters that are denied most, with their state where the rule allows it.
import { api, poller } from "./api.js";
import { bar } from "./chart.js";
import { $, el, setError, setMessage, setState, table, value } from "./dom.js";
import { clock, duration, link, number } from "./format.js";

const HEADS = ["Counter", "Rule", "Denied per minute", "Since", "State"];

function name(one) {
  const { domain, descriptor, counter } = one;
  // A text of /top may be cut, so it would name another counter.
  if (descriptor && !("denied" in one)) return value(descriptor);
  if (descriptor) return el("a", { href: link("counter", { domain, descriptor }) }, value(descriptor));
  return el("span", {}, value(counter), el("span", { class: "place" }, "hash: the rule does not allow its name"));
}

function state(one) {
  if (typeof one.requests !== "number") return el("span", {}, one.error ? value(one.error, 300) : "not known");
  const now = one.denied ? "denied" : `${number(one.remaining)} left`;
  const until = one.denied_until ? ` until ${clock(one.denied_until)}` : "";
  return el("span", {}, bar(one.used / one.requests), `${number(one.used)} of ${number(one.requests)}, ${now}${until}`);
}

function row(one) {
  const { domain, rule } = one;
  const denied = one.at_least < one.denied_hits ? `${number(one.at_least)} to ${number(one.denied_hits)}`
    : number(one.denied_hits);
  return { "data-counter": one.counter, cells: [
    name(one),
    el("span", {}, el("a", { href: link("rules", { domain, rule }) }, value(rule)), " in ", value(domain)),
    denied, one.first_denied_at ? clock(one.first_denied_at) : "\u2013", state(one),
  ] };
}

export function limitedView(section) {
  const [list, nearest] = [$("limited-list"), $("limited-nearest")];
  let wanted = null;
  let drawn = "";
  let top = null;

  function draw(counters) {
    const fits = (one) => wanted === null || (one.domain === wanted.domain && one.rule === wanted.rule);
    const shown = counters.filter(fits);
    const shape = JSON.stringify([wanted, shown]);
    if (shape === drawn) return shown.length;
    drawn = shape;
    const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const filter = wanted && el("p", {}, "Only the rule ", value(wanted.rule), " in ", value(wanted.domain), ". ",
      el("a", { href: "#/limited" }, "Show all rules"));
    const body = shown.length > 0
      ? table("Counters with denied hits in the last minute", HEADS, shown.map(row))
      : el("p", {}, "No counter was denied in the last minute.");
    list.replaceChildren(...(filter ? [filter] : []), body);
    // The new link of the same counter gets the focus of the one before.
    if (focused) [...list.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
    return shown.length;
  }

  async function refresh(signal) {
    try {
      const { counters } = await api("limited", { signal });
      const count = draw(counters);
      setMessage(section);
      setState(section, count > 0 ? "ready" : "empty");
    } catch (error) {
      if (signal.aborted) return;
      // /top needs no token: hashes without a state.
      if (error.status === 403 && top) draw(top.top ?? top.counters ?? []);
      setError(section, error);
    }
    await readNearest(signal);
  }

  // The rules whose counters have names, with a link to those nearest their limit.
  async function readNearest(signal) {
    try {
      const { rules } = await api("activity?order=near&limit=100", { signal });
      const named = rules.filter(({ usage }) => usage).slice(0, 20);
      const shape = JSON.stringify(named.map(({ domain, rule }) => [domain, rule]));
      if (nearest.dataset.shape === shape) return;
      nearest.dataset.shape = shape;
      const items = named.map(({ domain, rule }) =>
        el("li", {}, el("a", { href: link("rules", { domain, rule }) }, value(rule)), " in ", value(domain)));
      nearest.replaceChildren(...(items.length > 0
        ? [el("h3", {}, "Nearest their limit"), el("p", {}, "Rules with usage list their nearest counters:"),
          el("ul", {}, ...items)]
        : []));
    } catch {
      // The list above has the error.
    }
  }

  const poll = poller(5, refresh);
  return {
    show(params) {
      const [domain, rule] = [params.get("domain"), params.get("rule")];
      wanted = domain !== null && rule !== null ? { domain, rule } : null;
      delete section.dataset.state;
      poll.start();
    },
    hide: () => poll.stop(),
    token() {
      delete section.dataset.state;
      poll.now();
    },
    tick(event) {
      top = event.top ?? top;
      if (section.dataset.state === "token" && event.top) draw(event.top.top ?? event.top.counters ?? []);
    },
  };
}
