// Values of requests, names of rules and errors that try to be more than text, in every view.
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";

import { LivePage } from "./live_page.js";
import { QuotaStream } from "./quota_stream.js";
import { Stage, TOKEN } from "./stage.js";
import { until } from "./until.js";

// The bound of `request.max_text_bytes`.
const LONGEST = 65_536;
const VALUES = [
  "<script>hit()</script>",
  '"><img src=x onerror=hit()>',
  "javascript:hit()",
  "\u0000\u0007\u001b[31mred\u001b[0m\r\n\t\u009b",
  "\u202eright to left\u2066\u200f",
  "a,b=c\\,d\\",
  "__proto__",
  "#/counter?domain=x&descriptor=%00",
  "a\u0301".repeat(500),
  "A".repeat(LONGEST),
];
const DOMAIN = "<b>hostile</b>\u202e";
const KEY = "<img src=x onerror=hit()>";

// A descriptor as the command line and the page write it.
function descriptor(key, value) {
  const escaped = (text) => text.replace(/[\\,]/g, "\\$&");
  return `${escaped(key)}=${escaped(value)}`;
}

describe("hostile text", { timeout: 600_000 }, () => {
  const stage = new Stage();
  let live, quota;
  before(async () => {
    await stage.start();
    for (const value of VALUES) {
      // The rule allows one.
      for (let calls = 0; calls < 3; calls++) await stage.weir.call(DOMAIN, [[KEY, value]]);
    }
    quota = new QuotaStream(stage.weir.grpc, "partners", { tenant: VALUES[1] }, "<script>hit()</script>");
    await quota.assigned;
    live = await LivePage.open(stage.browser, stage.weir.origin);
    await live.connected();
    await live.enterToken(TOKEN);
  });
  after(async () => {
    quota?.stop();
    await stage.stop();
  });

  it("is only text in the lists", async () => {
    for (const view of ["health", "rules", "limited", "quotas"]) {
      await live.show(view);
      await live.assertHarmless();
    }
    await live.show("limited");
    await until("a list with hostile values", async () => {
      return (await live.find("#limited-list").innerText()).includes("<script>hit()</script>");
    });
    await live.assertHarmless();
    await live.show("rules");
    await live.find("[data-rule='<script>hit()</script>'] button[data-open]").first().click();
    await live.see("[data-detail='<script>hit()</script>']");
    await live.assertHarmless();
  });

  for (const [index, value] of VALUES.entries()) {
    it(`is only text as value ${index} of a counter and of a trial`, async () => {
      for (const view of ["counter", "try"]) {
        await live.find(`nav a[data-view=${view}]`).click();
        await live.find(`#${view}-domain`).fill(DOMAIN);
        await live.find(`#${view}-descriptor`).fill(descriptor(KEY, value));
        await live.find(view === "try" ? "#try-run" : "#counter-show").click();
        // A value that does not fit into a request is an error with its reason.
        await live.see(`section#view-${view}:is([data-state=ready], [data-state=error])`);
        await live.assertHarmless();
      }
    });
    it(`is only text as value ${index} in the address`, async () => {
      const query = new URLSearchParams({ domain: DOMAIN, descriptor: descriptor(KEY, value) });
      const other = await live.page.context().newPage();
      const opened = new LivePage(other, stage.weir.origin);
      await other.goto(`${stage.weir.origin}/#/counter?${query}`);
      await opened.see("section#view-counter[data-state]");
      await opened.assertHarmless();
      await other.close();
    });
  }

  it("is only text in the error of a reload", async () => {
    appendFileSync(join(stage.rules, "hostile.yaml"), '  - { key: "<script>hit()</script>", hits: 1 }\n');
    await live.show("health");
    await live.see("#health-problems [data-part=rules]");
    await live.assertHarmless();
  });
});
