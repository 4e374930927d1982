// A fixed scene for the screenshots: the responses of the admin port at one instant. Its numbers are invented.
export const AT = "2026-03-01T14:00:00Z";
const TICKS = 60;

// A history that grows, with waves: the same numbers in every run.
const wave = (height, phase) =>
  Array.from({ length: TICKS }, (_, tick) =>
    Math.max(0, Math.round(height * (0.6 + tick / 150 + 0.3 * Math.sin(tick / 5 + phase)))));
const none = Array(TICKS).fill(0);

function rule(domain, name, limit, hits, over) {
  const rates = { hits, within: hits - over, near: over / 4, over, shadow: 0, fallback: 0 };
  const history = {
    within: wave((hits - over) * 10, hits),
    near: wave(over * 2.5, 1),
    over: over ? wave(over * 10, 2) : none,
    fallback: none,
  };
  return {
    domain, rule: name, selector: name, location: `rules/${domain}.yaml:7:5`, limit, algorithm: "fixed_window",
    mode: "exact", usage: true, rates, history, denied_since: over ? "2026-03-01T13:52:10Z" : null,
  };
}

const RULES = [
  rule("shop", "calls-per-client", "1000 per 1m", 840, 96),
  rule("shop", "search", "50 per 1s, 10000 per 1h", 310, 12),
  rule("shop", "uploads", "5 per 1m", 24, 0),
  rule("partners", "per-tenant", "600 per 1m", 92, 4),
];

export const STATUS = {
  at: AT, version: "0.1.0", host: "weir-0", started_at: "2026-02-27T08:00:00Z", uptime_seconds: 194400,
  health: "serving", problems: [],
  decisions: {
    per_second: 1266, denied_per_second: 112, near_per_second: 28, fallback_per_second: 0, p50_ms: 0.4, p99_ms: 1.9,
  },
  store: {
    kind: "redis", url: "redis-cluster://redis:6379", reachable: true,
    nodes: [1, 2, 3].map((node) => ({
      node: `redis-${node}:6379`, breaker: "closed", reachable: true, calls: 90210 * node, errors: 0,
    })),
  },
  rules: { loaded_at: "2026-03-01T09:30:00Z", domains: 2, rules: 4, files: 2, warnings: 0, last_error: null },
  xds: null, plans: null, changes: { active: 0, last_error: null }, rlqs: { streams: 3, buckets: 12 },
  certificates: [{ for: "grpc", expires_at: "2026-05-20T00:00:00Z", days_left: 79 }],
  connections: { grpc: 24, http: 0, admin: 3, refused: 0 }, viewers: 1,
};

export const ACTIVITY = { tick_seconds: 10, until: AT, total: RULES.length, rules: RULES };
export const TOP = { seconds: 60, counters: [] };
export const LIVE = {
  status: STATUS, rules: RULES.map(({ domain, rule, rates }) => ({ domain, rule, rates })), top: TOP, point: null,
};

const counter = (client, denied, used) => ({
  domain: "shop", rule: "calls-per-client", counter: client.padEnd(16, "0"), descriptor: `client=${client}`,
  denied_hits: denied, at_least: denied, first_denied_at: "2026-03-01T13:59:12Z", used, requests: 1000,
  remaining: Math.max(0, 1000 - used), reset_after_seconds: 41, denied: used >= 1000,
  denied_until: "2026-03-01T14:00:41Z",
});
export const LIMITED = {
  seconds: 60, counters: [counter("acme", 3120, 1000), counter("globex", 1410, 1000), counter("initech", 220, 1000)],
};
export const QUOTAS = { total: 0, quotas: [] };
export const CHANGES = { changes: [] };
