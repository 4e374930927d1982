// The view of the rules: a tree of domains and rules with their rates and the last ten minutes.
import { api, poller, withQuery } from "./api.js";
import { columns } from "./chart.js";
import { allChanges, changeList } from "./changes.js";
import { $, el, setError, setMessage, setState, setText, value } from "./dom.js";
import { cut, historyText, isChangeOf, link, number, rate } from "./format.js";
import { ruleDetail } from "./rule_detail.js";

// The most rules of a page, at first and with a filter or on demand.
const FEW = 100;
const MANY = 1000;
// The number of rules whose rates an event has.
const IN_EVENT = 100;
const HEADS = ["Rule", "Limit", "Hits/s", "Near/s", "Denied/s", "Fallback/s", "Last ten minutes"];
const MEASURES = { denied: "over", hits: "hits", near: "near", fallback: "fallback" };
const ZERO = { hits: 0, near: 0, over: 0, fallback: 0 };

const keyOf = ({ domain, rule }) => `${domain}\0${rule}`;
const below = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

let ids = 0;

// The row of a rule, and below it a row that is open on demand.
class RuleRow {
  constructor(rule) {
    this.id = `rule-${++ids}`;
    this.key = keyOf(rule);
    this.detail = null;
    this.button = el("button", { type: "button", class: "open", "data-open": "", "aria-expanded": "false",
      onclick: () => this.toggle() }, value(rule.rule));
    this.place = el("span", { class: "value place" });
    this.cells = HEADS.slice(1).map((_, at) => el("td", { class: at === 3 || at === 5 ? null : "extra" }));
    this.cells[5].className = "ticks";
    this.row = el("tr", { "data-domain": rule.domain, "data-rule": rule.rule },
      el("th", { scope: "row" }, this.button, this.place), ...this.cells);
    this.below = el("tr", { class: "detail", id: this.id, hidden: true });
    this.update(rule);
  }

  update(rule) {
    this.rule = rule;
    this.rates = rule.rates;
    setText(this.place, cut(rule.location ?? ""));
    setText(this.cells[0], cut(rule.limit ?? ""));
    this.cells[5].replaceChildren(columns(rule.history ?? {}, historyText(rule.history)));
    this.drawRates();
    this.detail?.update(rule);
  }

  drawRates() {
    const { hits, near, over, fallback } = this.rates ?? {};
    [hits, near, over, fallback].forEach((one, at) => setText(this.cells[at + 1], rate(one)));
    this.cells[3].classList.toggle("denied", over > 0);
  }

  toggle(isOpen = this.below.hidden) {
    if (isOpen && !this.detail) {
      this.detail = ruleDetail(this.rule);
      this.below.append(el("td", { colspan: HEADS.length }, this.detail.node));
    }
    this.below.hidden = !isOpen;
    this.button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) {
      this.button.setAttribute("aria-controls", this.id);
      this.detail.refresh();
    }
  }

  fits(words) {
    const { domain, rule, selector = "", location = "" } = this.rule;
    const text = `${domain} ${rule} ${selector} ${location}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }
}

export function rulesView(section) {
  const [list, order, filter, more] = ["rules-list", "rules-order", "rules-filter", "rules-more"].map($);
  const rows = new Map();
  const domains = new Map();
  let wanted = null;
  let limit = FEW;
  let total = 0;
  const others = changeList("Other temporary changes", () => readChanges());
  $("rules-changes").append(others.node);

  const words = () => filter.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
  // A completed tick reads earlier; this is for a page without events.
  const poll = poller(15, refresh);

  async function refresh(signal) {
    const most = words().length > 0 ? MANY : limit;
    try {
      const page = await api(withQuery("activity", { order: order.value, limit: most }), { signal });
      const rules = [...page.rules];
      total = page.total;
      if (wanted && !rules.some((rule) => keyOf(rule) === keyOf(wanted))) {
        rules.push(...(await api(withQuery("activity", wanted), { signal })).rules);
      }
      merge(rules);
      draw();
    } catch (error) {
      if (!signal.aborted) setError(section, error);
    }
    await readChanges(signal);
  }

  // The changes of descriptors, and those of rules without a row. Those of a rule with a row are at the rule.
  async function readChanges(signal) {
    // Without the token the list stays empty.
    const changes = await allChanges(signal);
    if (!changes) return;
    const isListed = (one) => [...rows.values()].some((row) => isChangeOf(one, row.rule));
    others.set(changes.filter((one) => !isListed(one)), ({ domain, descriptor, rule, selector }) => [
      ...(descriptor === undefined
        ? ["Rule ", value(rule ?? ""), ...(selector === undefined ? [] : [" (", value(selector), ")"])]
        : [el("a", { href: link("counter", { domain, descriptor }) }, value(descriptor))]),
      " in ", value(domain), ": ",
    ]);
  }

  function merge(rules) {
    const given = new Set(rules.map(keyOf));
    for (const rule of rules) {
      const row = rows.get(keyOf(rule));
      if (row) row.update(rule);
      else rows.set(keyOf(rule), new RuleRow(rule));
    }
    for (const [key, row] of rows) {
      // An open rule stays, so that a form in it is not lost.
      if (given.has(key) || !row.below.hidden) continue;
      row.row.remove();
      row.below.remove();
      rows.delete(key);
    }
  }

  // The row of a rule with a selector instead of its name is found too.
  const isWanted = ({ rule: { domain, rule, selector } }) =>
    wanted !== null && domain === wanted.domain && (rule === wanted.rule || selector === wanted.rule);

  function draw() {
    place();
    const shown = [...rows.values()].filter((row) => !row.row.hidden).length;
    const text = rows.size < total ? `${number(rows.size)} of ${number(total)} rules. ` : `${number(total)} rules. `;
    const isLess = rows.size < total && limit < MANY;
    if (more.dataset.text !== `${text}${isLess}`) {
      more.dataset.text = `${text}${isLess}`;
      more.replaceChildren(text, isLess ? el("button", { type: "button", onclick: all }, "Show more") : "");
    }
    const target = [...rows.values()].find(isWanted);
    if (target) {
      wanted = null;
      target.toggle(true);
      target.button.focus();
    }
    const isEmpty = shown === 0;
    const why = rows.size > 0
      ? "No rule fits the filter."
      : "No rule has decided anything yet. Order by name lists all.";
    setMessage(section, isEmpty ? why : "");
    setState(section, isEmpty ? "empty" : "ready");
  }

  function all() {
    limit = MANY;
    poll.now();
  }

  function sorted() {
    const measure = MEASURES[order.value];
    const number = (row) => row.rule.rates?.[measure] ?? 0;
    return [...rows.values()].sort((one, other) =>
      (measure ? number(other) - number(one) : 0)
      || below(one.rule.domain, other.rule.domain) || below(one.rule.rule, other.rule.rule));
  }

  function bodyOf(domain) {
    if (!domains.has(domain)) {
      const body = el("tbody");
      const heads = HEADS.map((text, at) =>
        el("th", { scope: "col", class: [1, 2, 3, 5].includes(at) ? "extra" : null }, text));
      const caption = el("caption", {}, "Rules of the domain ", value(domain));
      const node = el("details", { open: true, class: "domain" }, el("summary", {}, value(domain)),
        el("table", {}, caption, el("thead", {}, el("tr", {}, ...heads)), body));
      domains.set(domain, { body, node });
    }
    return domains.get(domain);
  }

  // Puts the rows into their order. While something in the list has the focus, rows stay where they are.
  function place() {
    const isUsed = list.contains(document.activeElement);
    const needed = words();
    const used = new Set();
    for (const row of sorted()) {
      const domain = bodyOf(row.rule.domain);
      const isHidden = !row.fits(needed);
      if (!isHidden) used.add(row.rule.domain);
      row.row.hidden = isHidden;
      if (isHidden) row.below.hidden = true;
      if (isHidden) row.button.setAttribute("aria-expanded", "false");
      if (!isUsed || !row.row.isConnected) domain.body.append(row.row, row.below);
      if (!domain.node.isConnected || !isUsed) list.append(domain.node);
    }
    for (const [name, { node, body }] of domains) {
      node.hidden = !used.has(name);
      if (body.childElementCount > 0) continue;
      node.remove();
      domains.delete(name);
    }
  }

  order.addEventListener("change", () => {
    draw();
    poll.now();
  });
  let hadFilter = false;
  filter.addEventListener("input", () => {
    draw();
    // The first word reads more rules.
    if (hadFilter !== words().length > 0) poll.now();
    hadFilter = words().length > 0;
  });

  return {
    show(params) {
      delete section.dataset.state;
      const [domain, rule] = [params.get("domain"), params.get("rule")];
      if (domain !== null && rule !== null) {
        wanted = { domain, rule };
        filter.value = "";
      }
      poll.start();
    },
    hide: () => poll.stop(),
    token: () => poll.now(),
    tick({ rules, point }) {
      if (point) poll.now();
      if (!rules) return;
      const rates = new Map(rules.map((rule) => [keyOf(rule), rule.rates]));
      for (const [key, row] of rows) {
        // An event with fewer rules than it can have lacks those without a decision.
        // Rates that are not known stay so.
        const isQuiet = rules.length < IN_EVENT && row.rule.rates !== null;
        row.rates = rates.get(key) ?? (isQuiet ? ZERO : row.rule.rates);
        row.drawRates();
      }
    },
  };
}
