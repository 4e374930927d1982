// The view that tries a request: the lookup of its rules step by step, and the decision.
import { api } from "./api.js";
import { $, el, exactField, facts, setError, setMessage, setState, value } from "./dom.js";
import { duration, link, number, parseLimit } from "./format.js";
import { tierList } from "./tiers.js";

const WORDS = { OK: "passes", OVER_LIMIT: "is denied" };
const DESCRIPTORS_MAX = 16;

const at = (location) => (location ? `${location.file}:${location.line}:${location.column}` : "");

// One step of the lookup: an entry, and the nodes that were compared with it.
function step({ entry, rejected, accepted }) {
  const node = (one, mark) => el("li", {}, `${mark} `, value(one.accepts, 200), " ", value(at(one.location), 200));
  return el("li", {}, value(entry, 200), el("ul", {}, ...rejected.map((one) => node(one, "no:")),
    accepted ? node(accepted, "yes:") : el("li", {}, "no node accepts it")));
}

function outcome(explained) {
  const found = explained.outcome ?? {};
  const texts = (all) => value((all ?? []).join("; "), 600);
  if (found.kind === "rule") {
    const { domain } = explained;
    return facts([
      ["rule", el("a", { href: link("rules", { domain, rule: found.rule }) }, value(found.rule))],
      ...(found.selector && found.selector !== found.rule ? [["selector", value(found.selector, 300)]] : []),
      ["file", value(at(found.location), 300)],
      ["limit", el("span", {}, value(found.policy), " ", texts(found.tiers))],
      ["options", texts(found.options)],
      ["counter", texts(found.counter)],
    ]);
  }
  if (found.kind === "no_rule") {
    const misses = (found.near_misses ?? []).map((miss) => el("li", {}, value(miss.rule ?? miss.label, 200), " ",
      value(at(miss.location), 200), ": ", texts(miss.differs)));
    return el("div", {}, el("p", {}, "No rule limits it: ", value(found.why ?? "", 600)),
      misses.length > 0 ? el("div", {}, el("p", {}, "Rules that almost match:"), el("ul", {}, ...misses)) : null);
  }
  return el("p", {}, "No file has this domain. ", value(found.hint ?? "", 600));
}

function explanation(explained) {
  const lease = explained.lease && el("p", {}, "It ends the lease ", value(explained.lease), ".");
  return el("div", {}, lease, el("h4", {}, "Lookup"),
    el("ol", { class: "steps" }, ...(explained.levels ?? []).map(step)), outcome(explained));
}

function withLimit(tried) {
  const { code, requests, remaining, tiers } = tried;
  const numbers = typeof requests === "number" ? `: limit ${number(requests)}, ${number(remaining)} left` : "";
  return el("div", { "data-with-limit": code, class: `verdict ${code === "OK" ? "within" : "over"}` },
    `With the other limit the request ${WORDS[code] ?? code}${numbers}.`, tiers ? tierList(tiers) : null);
}

function decision(one, domain) {
  const { descriptor, code } = one;
  return el("article", { class: "card" },
    el("h3", {}, value(descriptor, 200)),
    el("p", {}, `This descriptor ${WORDS[code] ?? code}: `, value(one.reason ?? "", 300),
      typeof one.remaining === "number"
        ? `; ${number(one.remaining)} left after it, resets in ${duration(one.reset_after_seconds)}` : ""),
    one.note ? el("p", { class: "message warning" }, value(one.note, 600)) : null,
    one.tiers?.length > 0 ? el("div", {}, el("h4", {}, "Before the request"), tierList(one.tiers)) : null,
    one.with_limit ? withLimit(one.with_limit) : null,
    explanation(one.explain ?? {}),
    one.counter ? el("p", {}, el("a", { href: link("counter", { domain, descriptor }) }, "Open its counter")) : null);
}

export function tryView(section) {
  const [form, result, hits, limit] = ["try-form", "try-result", "try-hits", "try-limit"].map($);
  const [domainField, descriptorField] = [exactField($("try-domain")), exactField($("try-descriptor"))];
  // A descriptor from an address may have line breaks; one that is typed has none.
  let fromAddress = null;
  let runs = 0;

  function request() {
    const text = descriptorField.get();
    const descriptors = text === fromAddress ? [text] : text.split(/[\r\n]+/).filter((line) => line !== "");
    if (descriptors.length > DESCRIPTORS_MAX) {
      throw new Error(`${descriptors.length} descriptors are more than ${DESCRIPTORS_MAX}; remove some`);
    }
    const count = hits.value.trim() === "" ? 1 : Number(hits.value);
    if (!Number.isSafeInteger(count) || count < 0) {
      throw new Error("write the hits as a whole number from 0 to 9007199254740991");
    }
    const body = { domain: domainField.get(), descriptors, hits: count };
    if (limit.value.trim() !== "") body.limit = parseLimit(limit.value);
    return body;
  }

  async function run() {
    const own = ++runs;
    delete section.dataset.state;
    result.replaceChildren();
    setMessage(section);
    let body;
    try {
      body = request();
      const tried = await api("try", { method: "POST", body });
      if (own !== runs) return;
      result.replaceChildren(
        el("p", { class: `verdict ${tried.code === "OK" ? "within" : "over"}`, "data-code": tried.code },
          `The request ${WORDS[tried.code] ?? tried.code}.`),
        ...tried.descriptors.map((one) => decision(one, body.domain)));
      setState(section, "ready");
    } catch (error) {
      if (own !== runs) return;
      if (error.status === 403) await explainOnly(body, own);
      setError(section, error);
    }
  }

  // The lookup needs no token.
  async function explainOnly({ domain, descriptors }, own) {
    try {
      const { explanations } = await api("explain", { method: "POST", body: { domain, descriptors } });
      if (own !== runs) return;
      result.replaceChildren(...explanations.map((one, index) =>
        el("article", { class: "card" }, el("h3", {}, value(descriptors[index], 200)), explanation(one))));
    } catch {
      // The error of the trial is shown.
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });

  return {
    show(params) {
      const [domain, descriptor] = [params.get("domain"), params.get("descriptor")];
      if (domain !== null) domainField.set(domain);
      if (descriptor !== null) {
        fromAddress = descriptor;
        descriptorField.set(descriptor);
      }
      if (section.dataset.state === undefined) setState(section, "empty");
    },
    token() {
      if (section.dataset.state === "token") run();
    },
  };
}
