// The processes beside the browser: Redis, weir, and a load.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

// Milliseconds for a start. A healthy process needs less than a second.
const START_TIMEOUT = 60_000;
// Lines of the log that a failed start shows.
const LOG_LINES = 50;

// A port of loopback that was free a moment ago.
export async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

// The first line of `stream` that `wanted` accepts, as `wanted` returns it. All lines are read to the end,
// because a full pipe would stop the process.
function firstLine(child, stream, wanted) {
  return new Promise((resolve, reject) => {
    const log = [];
    const fail = (why) => reject(new Error(`${child.spawnfile} ${why}; its log:\n${log.join("\n")}`));
    const tooLate = setTimeout(() => {
      child.kill("SIGKILL");
      fail(`is not ready within ${START_TIMEOUT / 1000} s`);
    }, START_TIMEOUT);
    createInterface({ input: stream }).on("line", (line) => {
      log.push(line);
      if (log.length > LOG_LINES) log.shift();
      const found = wanted(line);
      if (found) {
        clearTimeout(tooLate);
        resolve(found);
      }
    });
    child.once("error", (error) => fail(`does not start: ${error.message}`));
    child.once("exit", (code) => {
      clearTimeout(tooLate);
      fail(`ended with ${code}`);
    });
  });
}

async function end(child, signal) {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill(signal);
  await exited;
}

// A Redis on a port that stays the same over a restart. It keeps nothing.
export class Redis {
  async start() {
    this.port ??= await freePort();
    this.folder ??= mkdtempSync(join(tmpdir(), "weir-ui-redis-"));
    const flags = ["--port", this.port, "--bind", "127.0.0.1", "--save", "", "--dir", this.folder];
    this.child = spawn(process.env.REDIS_SERVER ?? "redis-server", flags.map(String), {
      stdio: ["ignore", "pipe", "ignore"],
    });
    await firstLine(this.child, this.child.stdout, (line) => /ready to accept connections/i.test(line));
    return this;
  }

  // A crash: connections end, and later ones are refused.
  async kill() {
    await end(this.child, "SIGKILL");
  }

  async stop() {
    await this.kill();
    if (this.folder) rmSync(this.folder, { recursive: true, force: true });
  }
}

// A weir on loopback. `settings` are environment variables.
export class Weir {
  constructor(rules, settings = {}) {
    if (!process.env.WEIR) throw new Error("WEIR must be the path of the binary; make test-ui sets it");
    this.rules = rules;
    this.settings = settings;
  }

  // Starts it, again on the same ports after a stop.
  async start() {
    const listen = (name) => [`--${name}-listen`, this[name] ?? "127.0.0.1:0"];
    const flags = ["serve", "--rules", this.rules, ...["grpc", "http", "admin"].flatMap(listen)];
    const env = { PATH: process.env.PATH, WEIR__LOG__FORMAT: "json", ...this.settings };
    this.child = spawn(process.env.WEIR, flags, { env, stdio: ["ignore", "ignore", "pipe"] });
    const addresses = await firstLine(this.child, this.child.stderr, (line) => {
      try {
        const fields = JSON.parse(line);
        return fields.grpc && fields.http && fields.admin ? fields : null;
      } catch {
        return null;
      }
    });
    for (const name of ["grpc", "http", "admin"]) this[name] = addresses[name];
    return this;
  }

  get origin() {
    return `http://${this.admin}`;
  }

  // The response of the admin port: its status and its JSON, or null.
  async api(path, { method = "GET", body, headers = {}, token = this.settings.WEIR__ADMIN__TOKEN } = {}) {
    const response = await fetch(this.origin + path, {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: token ? { authorization: `Bearer ${token}`, ...headers } : headers,
    });
    const text = await response.text();
    let json = null;
    try {
      json = JSON.parse(text);
    } catch {
      // Some errors are plain text.
    }
    return { status: response.status, json, text };
  }

  // One request for one descriptor, a list of [key, value]. Returns the overall code.
  async call(domain, entries) {
    const descriptors = [{ entries: entries.map(([key, value]) => ({ key, value })) }];
    const response = await fetch(`http://${this.http}/json`, {
      method: "POST",
      body: JSON.stringify({ domain, descriptors }),
    });
    if (response.status !== 200 && response.status !== 429) {
      throw new Error(`/json: ${response.status} ${await response.text()}`);
    }
    return (await response.json()).overallCode;
  }

  async stop() {
    await end(this.child, "SIGTERM");
  }
}

// `weir bench` with these flags until `stop`. It survives errors of the service.
export class Load {
  constructor(weir, flags) {
    const all = ["bench", "--addr", weir.grpc, "--duration", "3600", "--connections", "1", ...flags];
    this.child = spawn(process.env.WEIR, all, { stdio: "ignore" });
  }

  async stop() {
    await end(this.child, "SIGKILL");
  }
}

// The result of `weir` with these flags: exit code, output, and milliseconds.
export async function run(flags) {
  const start = performance.now();
  const child = spawn(process.env.WEIR, flags, { stdio: ["ignore", "pipe", "inherit"] });
  const chunks = [];
  child.stdout.on("data", (chunk) => chunks.push(chunk));
  const [code] = await once(child, "close");
  return { code, stdout: Buffer.concat(chunks).toString(), ms: performance.now() - start };
}
