// Measures the live page: bytes, time to the first view, CPU of weir with ten viewers, refreshes with a
// million counters, and decisions with and without viewers. Prints tables in Markdown.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";

import { LivePage, launch } from "./live_page.js";
import { Load, Weir, run } from "./processes.js";
import { until } from "./until.js";

const { values: options } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    rounds: { type: "string", default: "3" },
    counters: { type: "string", default: "1000000" },
  },
});
const [SECONDS, ROUNDS, COUNTERS] = [options.seconds, options.rounds, options.counters].map(Number);
const VIEWERS = 10;
const REFRESHES = 30;
const LOADS = 10;
const RATE = 1000;
const RULES = `
domain: bench
descriptors:
  - key: client
    rate_limit: { name: calls, requests: 3, window: 30d, usage: true }
`;
const REFRESHED = [
  "/", "/status", "/activity?limit=100", "/top", "/limited", "/usage?domain=bench&rule=calls&limit=100",
];
const TICKS = Number(execFileSync("getconf", ["CLK_TCK"]));

const sorted = (numbers) => [...numbers].sort((a, b) => a - b);
const median = (numbers) => sorted(numbers)[Math.floor(numbers.length / 2)];
const print = (...lines) => process.stdout.write(`${lines.join("\n")}\n`);

// Seconds of CPU time that weir has used: utime and stime of proc_pid_stat(5).
function cpuSeconds(weir) {
  const fields = readFileSync(`/proc/${weir.child.pid}/stat`, "utf8").split(") ").pop().split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

// A viewer that fetches what the page fetches on its view of rules. `bytes` is what its stream received.
class Viewer {
  constructor(weir) {
    this.bytes = 0;
    this.connected = new Promise((resolve, reject) => {
      this.request = get(`${weir.origin}/live`, (response) => {
        if (response.statusCode !== 200) reject(new Error(`/live: ${response.statusCode}`));
        resolve();
        let text = "";
        response.setEncoding("utf8");
        response.on("error", () => {});
        response.on("data", (chunk) => {
          this.bytes += Buffer.byteLength(chunk);
          const events = (text + chunk).split("\n\n");
          text = events.pop();
          const data = events.map((event) => event.match(/^data: (.*)$/m)?.[1]).filter(Boolean);
          if (data.some((json) => JSON.parse(json).point)) weir.api("/activity").catch(() => {});
        });
      });
      this.request.on("error", reject);
    });
  }
}

async function withViewers(weir, number, measured) {
  const viewers = Array.from({ length: number }, () => new Viewer(weir));
  await Promise.all(viewers.map(({ connected }) => connected));
  try {
    return await measured(viewers);
  } finally {
    for (const { request } of viewers) request.destroy();
  }
}

// Cold loads of the page: milliseconds until the view of health is there, and the bytes of its files.
async function loads(weir) {
  const browser = await launch();
  const results = [];
  for (let load = 0; load < LOADS; load++) {
    const script = () => {
      const watch = new MutationObserver(() => {
        if (!document.querySelector("#view-health[data-state=ready]")) return;
        globalThis.firstView = performance.now();
        watch.disconnect();
      });
      watch.observe(document, { subtree: true, childList: true, attributes: true });
    };
    const live = await LivePage.open(browser, weir.origin, { script });
    await live.state("health", "ready");
    results.push(await live.page.evaluate(() => {
      const files = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
        .filter(({ name }) => new URL(name).pathname === "/" || new URL(name).pathname.startsWith("/ui/"));
      const bytes = files.reduce((sum, { transferSize }) => sum + transferSize, 0);
      return { ms: globalThis.firstView, bytes, files: files.length };
    }));
    await live.close();
  }
  await browser.close();
  return results;
}

async function p99(weir) {
  const flags = ["bench", "--addr", weir.grpc, "--domain", "bench", "client=p{n}", "--keys", "1000", "--json",
    "--rate", String(2 * RATE), "--duration", String(Math.max(5, SECONDS / 2))];
  return JSON.parse((await run(flags)).stdout).latency_us.p99;
}

const folder = mkdtempSync(join(tmpdir(), "weir-ui-bench-"));
writeFileSync(join(folder, "bench.yaml"), RULES);
const weir = new Weir(folder, {
  WEIR__STORE__KIND: "memory",
  WEIR__USAGE__MAX_NAMES: String(2 * COUNTERS),
  // One address gets a quarter of them.
  WEIR__ADMIN__MAX_CONNECTIONS: "256",
});
let load;
try {
  await weir.start();
  load = new Load(weir, ["--domain", "bench", "client=w{n}", "--keys", "1000", "--rate", String(RATE)]);

  const shown = await loads(weir);
  print("| the page | |", "| --- | --- |", `| files | ${shown[0].files} |`,
    `| bytes transferred, with headers | ${shown[0].bytes} |`,
    `| ms to the first view, median of ${LOADS} cold loads | ${median(shown.map(({ ms }) => ms)).toFixed(0)} |`, "");

  print(`| viewers, at ${RATE} calls/s | CPU of weir, % of a core | bytes per viewer and second |`);
  print("| --- | --- | --- |");
  for (const number of [0, VIEWERS]) {
    await withViewers(weir, number, async (viewers) => {
      const before = cpuSeconds(weir);
      const start = performance.now();
      // The duration is the experiment.
      await pause(SECONDS * 1000);
      const seconds = (performance.now() - start) / 1000;
      const percent = (100 * (cpuSeconds(weir) - before)) / seconds;
      const bytes = number ? viewers.reduce((sum, one) => sum + one.bytes, 0) / number / seconds : 0;
      print(`| ${number} | ${percent.toFixed(2)} | ${bytes.toFixed(0)} |`);
    });
  }

  print("", `| round | p99 without viewers, µs | p99 with ${VIEWERS} viewers, µs |`, "| --- | --- | --- |");
  await load.stop();
  for (let round = 1; round <= ROUNDS; round++) {
    const without = await p99(weir);
    const beside = await withViewers(weir, VIEWERS, () => p99(weir));
    print(`| ${round} | ${without.toFixed(0)} | ${beside.toFixed(0)} |`);
  }

  // Random keys: three times as many as counters are wanted, so that most calls make a new one.
  load = new Load(weir, ["--domain", "bench", "client=m{n}", "--keys", String(3 * COUNTERS)]);
  const counters = await until(`${COUNTERS} counters`, async () => {
    const { counters } = (await weir.api("/status")).json.store;
    return counters >= COUNTERS && counters;
  });
  await load.stop();
  load = new Load(weir, ["--domain", "bench", "client=w{n}", "--keys", "1000", "--rate", String(RATE)]);
  print("", `| refresh with ${counters} counters | median ms of ${REFRESHES} | largest ms |`, "| --- | --- | --- |");
  const row = async (name, once) => {
    const all = [];
    for (let refresh = 0; refresh < REFRESHES; refresh++) all.push(await once());
    print(`| ${name} | ${median(all).toFixed(1)} | ${Math.max(...all).toFixed(1)} |`);
  };
  for (const path of REFRESHED) {
    await row(`\`${path}\``, async () => {
      const start = performance.now();
      const { status, text } = await weir.api(path, { headers: { accept: "text/html, application/json" } });
      if (status !== 200) throw new Error(`${path}: ${status} ${text}`);
      return performance.now() - start;
    });
  }
  await row("`weir top --once`", async () => {
    const { code, ms } = await run(["top", "--addr", weir.origin, "--once"]);
    if (code !== 0) throw new Error(`weir top ended with ${code}`);
    return ms;
  });
} finally {
  await load?.stop();
  await weir.stop();
  rmSync(folder, { recursive: true, force: true });
}
