// The view of the service: what is wrong, and the state of each part.
import { $, el, facts, setError, setState, setText, table, value } from "./dom.js";
import { api } from "./api.js";
import { clock, cut, duration, milliseconds, number, rate } from "./format.js";

const WORDS = { serving: "serving", not_ready: "not ready: it gets no traffic", draining: "draining: it stops" };

// The title of each part with its facts, which are texts.
function parts(status) {
  const { decisions, store, rules, xds, plans, changes, rlqs, connections } = status;
  const all = [
    ["Service", [
      ["state", WORDS[status.health] ?? status.health],
      ["version", status.version],
      ["host", status.host ?? "unknown"],
      ["started", `${clock(status.started_at)}, ${duration(status.uptime_seconds)} ago`],
    ]],
    ["Decisions, last 10 s", decisions ? [
      ["requests", `${rate(decisions.per_second)} per s`],
      ["denied", `${rate(decisions.denied_per_second)} per s`],
      ["near the limit", `${rate(decisions.near_per_second)} per s`],
      ["by the fallback", `${rate(decisions.fallback_per_second)} per s`],
      ["half take at most", milliseconds(decisions.p50_ms)],
      ["99 % take at most", milliseconds(decisions.p99_ms)],
    ] : [["rates", "known after 10 s"]]],
  ];
  if (store?.kind === "memory") {
    all.push(["Store: memory", [
      ["counters", `${number(store.counters)} of ${number(store.counters_max)}`],
      ["evicted", number(store.evicted)],
    ]]);
  } else if (store) {
    all.push(["Store: Redis", [
      ["address", store.url],
      ["connection", store.reachable ? "open" : "none"],
      ["nodes", number(store.nodes?.length)],
    ]]);
  }
  if (rules) {
    all.push(["Rules", [
      ["loaded", clock(rules.loaded_at)],
      ["rules", `${number(rules.rules)} in ${number(rules.domains)} domains, ${number(rules.files)} files`],
      ["warnings", number(rules.warnings)],
      ["last error", rules.last_error ?? "none"],
    ]]);
  }
  if (xds) {
    all.push(["Rules by xDS", [
      ["server", xds.server],
      ["connection", xds.connected ? "open" : "none"],
      ["version", xds.version ?? "none yet"],
      ["last error", xds.last_error ?? "none"],
    ]]);
  }
  if (plans) {
    all.push(["Plans", [
      ["source", plans.source],
      ["plans", number(plans.plans)],
      ["customers", number(plans.customers)],
      ["read", clock(plans.read_at)],
      ["last error", plans.last_error ?? "none"],
    ]]);
  }
  if (changes) {
    all.push(["Temporary changes", [
      ["active", number(changes.active)],
      ["last error", changes.last_error ?? "none"],
    ]]);
  }
  if (rlqs) {
    all.push(["Divided limits (RLQS)", [["streams", number(rlqs.streams)], ["buckets", number(rlqs.buckets)]]]);
  }
  const ends = (status.certificates ?? []).map((one) => [
    `for ${one.for}`, `until ${clock(one.expires_at)}, ${number(one.days_left)} days left`,
  ]);
  if (ends.length > 0) all.push(["Certificates", ends]);
  if (connections) {
    all.push(["Connections", [
      ["gRPC", number(connections.grpc)],
      ["HTTP", number(connections.http)],
      ["admin port", number(connections.admin)],
      ["refused since the start", number(connections.refused)],
      ["viewers of this page", number(status.viewers)],
    ]]);
  }
  return all;
}

export function healthView(section) {
  const [problems, cards] = [$("health-problems"), $("health-cards")];
  let drawnProblems = null;
  let drawnShape = null;
  let values = [];
  let drawnNodes = null;
  const nodes = el("div", { class: "wide-card" });

  // Drawn only when they differ, because screen readers announce them.
  function drawProblems(all) {
    const shape = JSON.stringify(all);
    if (shape === drawnProblems) return;
    drawnProblems = shape;
    if (all.length === 0) {
      problems.replaceChildren(el("p", { class: "message good" }, "No problems."));
      return;
    }
    const items = all.map(({ part, text }) => el("li", { "data-part": part },
      el("strong", {}, cut(part, 40)), ": ", value(text, 600)));
    problems.replaceChildren(el("ul", { class: "problems" }, ...items));
  }

  function drawCards(status) {
    const all = parts(status);
    const shape = JSON.stringify(all.map(([title, rows]) => [title, rows.map(([term]) => term)]));
    const texts = all.flatMap(([, rows]) => rows.map(([, text]) => cut(text ?? "unknown", 300)));
    if (shape !== drawnShape) {
      drawnShape = shape;
      values = [];
      const drawn = all.map(([title, rows]) => {
        const shown = rows.map(([term]) => {
          const place = el("span", { class: "value" });
          values.push(place);
          return [term, place];
        });
        return el("div", { class: "card" }, el("h3", {}, title), facts(shown));
      });
      cards.replaceChildren(...drawn, nodes);
    }
    texts.forEach((text, at) => setText(values[at], text));
  }

  function drawNodes(store) {
    const all = store?.nodes ?? [];
    const shape = JSON.stringify(all);
    if (shape === drawnNodes) return;
    drawnNodes = shape;
    const rows = all.map((one) => ({
      cells: [value(one.node), one.breaker, one.reachable ? "yes" : "no", number(one.calls), number(one.errors)],
    }));
    const heads = ["Node", "Breaker", "Answers", "Calls", "Errors"];
    nodes.replaceChildren(...(rows.length > 0 ? [table("Nodes of Redis, since the start", heads, rows)] : []));
  }

  function draw(status) {
    drawProblems(status.problems ?? []);
    drawCards(status);
    drawNodes(status.store);
    section.querySelector(".message").hidden = true;
    setState(section, "ready");
  }

  return {
    // The stream has the next states.
    async show() {
      if (section.dataset.state === "ready") return;
      try {
        const status = await api("status");
        // An event that came meanwhile is newer.
        if (section.dataset.state !== "ready") draw(status);
      } catch (error) {
        setError(section, error);
      }
    },
    tick: ({ status }) => draw(status),
  };
}
