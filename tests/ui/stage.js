// What every browser test needs: a Redis, a weir with two domains under load, a quota, and Chromium.
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { launch } from "./live_page.js";
import { ROOT } from "./packages.js";
import { Load, Redis, Weir } from "./processes.js";
import { QuotaStream } from "./quota_stream.js";

export const TOKEN = "token-of-the-browser-tests";
// Calls per second: enough to deny some within a second, and little for two cores.
const LOAD = ["--domain", "shop", "client=c{n}", "path=/search", "upload=u{n}", "--keys", "20", "--zipf", "1"];

export class Stage {
  async start() {
    this.rules = mkdtempSync(join(tmpdir(), "weir-ui-rules-"));
    cpSync(`${ROOT}tests/ui/rules`, this.rules, { recursive: true });
    this.redis = await new Redis().start();
    this.weir = new Weir(this.rules, {
      WEIR__REDIS__URL: `redis://127.0.0.1:${this.redis.port}`,
      WEIR__ADMIN__TOKEN: TOKEN,
    });
    await this.weir.start();
    this.load = new Load(this.weir, [...LOAD, "--rate", "100"]);
    this.quota = new QuotaStream(this.weir.grpc, "partners", { tenant: "acme" }, "envoy-1");
    this.browser = await launch();
    await this.quota.assigned;
    return this;
  }

  // Every part may be missing, because `start` may have failed.
  async stop() {
    await this.browser?.close();
    this.quota?.stop();
    await this.load?.stop();
    await this.weir?.stop();
    await this.redis?.stop();
    if (this.rules) rmSync(this.rules, { recursive: true, force: true });
  }
}
