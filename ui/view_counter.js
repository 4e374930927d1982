// The view of one counter: its state by tier, its history since the view was opened, and what changes it.
import { api, poller, withQuery } from "./api.js";
import { columns } from "./chart.js";
import { changeForm, changeList } from "./changes.js";
import { $, confirmed, el, exactField, facts, setError, setMessage, setState, setText, value } from "./dom.js";
import { clock, link, number } from "./format.js";
import { tierList, tierText } from "./tiers.js";

// Seconds between two samples, and the most samples: those of ten minutes.
const PERIOD = 2;
const SAMPLES_MAX = 300;

export function counterView(section) {
  const [form, result, actions, change] =
    ["counter-form", "counter-result", "counter-actions", "counter-change"].map($);
  const [domainField, descriptorField] = [exactField($("counter-domain")), exactField($("counter-descriptor"))];
  const list = changeList("Temporary changes", () => poll.now());
  let target = null;
  let samples = [];
  // When the state was read, in milliseconds, and its tiers with the elements of their texts.
  let read = 0;
  let shown = [];

  function use(next) {
    target = next;
    samples = [];
    shown = [];
    delete section.dataset.state;
    setMessage(section);
    result.replaceChildren();
    actions.hidden = true;
    const made = changeForm(target, () => poll.now());
    change.replaceChildren(list.node,
      el("details", {}, el("summary", {}, "Change this descriptor for a time"), made));
    $("counter-try").setAttribute("href", link("try", target));
    poll.start();
  }

  function draw(state) {
    const { domain, rule, tiers, denied } = state;
    // Two hits of a descriptor may reach different rules after a reload: the numbers of each start again.
    samples.push(tiers[0]?.used ?? null);
    samples = samples.slice(-SAMPLES_MAX);
    const until = state.denied_until ? ` until ${clock(state.denied_until)} at the earliest` : "";
    const drawn = tierList(tiers);
    shown = [...drawn.children].map((item, at) => [item.lastChild, tiers[at]]);
    const plan = state.plan ? `${state.plan.name ?? "none"} (${state.plan.selection})` : null;
    const location = state.location ?? {};
    const most = Math.max(tiers[0]?.requests ?? 0, ...samples);
    const history = columns({ within: samples }, `used hits of the first window, now ${number(samples.at(-1))}`,
      { max: most, kind: "large" });
    const whatIf = state.what_if && el("div", {}, el("h3", {}, "What-if limit"),
      el("p", {}, state.what_if.denied ? "It would deny one more hit." : "It would let one more hit pass."),
      tierList(state.what_if.tiers));
    result.replaceChildren(
      el("p", { class: denied ? "verdict over" : "verdict within" },
        denied ? `One more hit is denied${until}.` : "One more hit passes."),
      drawn,
      el("figure", {}, history, el("figcaption", {},
        `Used hits of the first window, of ${number(most)}: one column per sample, read every ${PERIOD} s ` +
        "since this counter was opened here.")),
      whatIf ?? "",
      facts([
        ["rule", el("span", {}, el("a", { href: link("rules", { domain, rule }) }, value(rule)),
          " in ", value(domain))],
        ["algorithm", state.algorithm],
        ...(plan ? [["plan", value(plan)]] : []),
        ["hash", value(state.counter ?? "none")],
        [`key in ${state.store}`, value(state.key ?? "", 300)],
        ["file", value(`${location.file ?? ""}:${location.line ?? ""}:${location.column ?? ""}`, 300)],
      ]),
    );
    list.set(state.changes ?? []);
  }

  async function refresh(signal) {
    if (!target) return;
    const own = target;
    try {
      const state = await api(withQuery("counters", own), { signal });
      if (own !== target) return;
      read = Date.now();
      const focused = result.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      draw(state);
      // The new link of the same target gets the focus of the one before.
      if (focused) [...result.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
      actions.hidden = false;
      setMessage(section);
      setState(section, "ready");
    } catch (error) {
      if (signal.aborted || own !== target) return;
      setError(section, error);
    }
  }

  const poll = poller(PERIOD, refresh);
  // Between two samples only the time until the reset changes.
  setInterval(() => {
    if (section.hidden || document.hidden) return;
    for (const [element, tier] of shown) setText(element, tierText(tier, (Date.now() - read) / 1000));
  }, 1000);

  async function empty() {
    const { domain, descriptor } = target;
    const text = [value(descriptor, 300), " in the domain ", value(domain),
      ". Its next hits count from 0, for all instances that share the store."];
    if (!(await confirmed("Empty this counter?", text, "Empty it"))) return;
    try {
      const { existed } = await api(withQuery("counters", { domain, descriptor }), { method: "DELETE" });
      await poll.now();
      setMessage(section, existed ? "The counter is empty." : "The counter had no hits.", "good");
    } catch (error) {
      setMessage(section, error.message, "error");
    }
    $("counter-delete").focus();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const next = { domain: domainField.get(), descriptor: descriptorField.get() };
    const hash = link("counter", next);
    if (location.hash === hash) use(next);
    else location.hash = hash;
  });
  $("counter-delete").addEventListener("click", empty);

  return {
    show(params) {
      const next = { domain: params.get("domain"), descriptor: params.get("descriptor") };
      if (next.domain !== null && next.descriptor !== null) {
        domainField.set(next.domain);
        descriptorField.set(next.descriptor);
        use(next);
      } else if (target) {
        poll.start();
      } else {
        setState(section, "empty");
      }
    },
    hide: () => poll.stop(),
    token: () => poll.now(),
  };
}
