// Every view of the live page, clicked through under load.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";

import { LivePage } from "./live_page.js";
import { Stage, TOKEN } from "./stage.js";
import { until } from "./until.js";

const RULE = '[data-domain="shop"][data-rule="calls-per-client"]';
const QUIET = "/counters?domain=shop&descriptor=quiet=ann";

describe("the live page", { timeout: 600_000 }, () => {
  const stage = new Stage();
  let live;
  before(async () => {
    await stage.start();
    live = await LivePage.open(stage.browser, stage.weir.origin);
  });
  after(() => stage.stop());

  it("shows a healthy service without problems", async () => {
    await live.connected();
    await live.state("health", "ready");
    await live.miss("#health-problems [data-part]");
  });

  it("asks for the token, and keeps it in the session only", async () => {
    for (const view of ["limited", "quotas"]) await live.show(view, "token");
    await live.enterToken("wrong");
    await live.show("limited", "token");
    await live.enterToken(TOKEN);
    await live.show("limited");
    const kept = await live.page.evaluate(() => [Object.values(sessionStorage).join(), localStorage.length]);
    assert.ok(kept[0].includes(TOKEN));
    assert.equal(kept[1], 0);
    assert.deepEqual(await live.page.context().cookies(), []);
    assert.ok(!live.requests.some((url) => url.includes(TOKEN)), "the token is in an address");
  });

  it("shows rules with rates, sorted and filtered", async () => {
    await live.show("rules");
    await live.see(`${RULE} svg`);
    await live.find("#rules-filter").fill("uploads");
    await live.see('[data-rule="uploads"]');
    await live.find(RULE).first().waitFor({ state: "hidden" });
    await live.find("#rules-filter").fill("");
    await live.find("#rules-order").selectOption("name");
    await live.see(RULE);
    const names = await live.find('[data-domain="shop"][data-rule]').evaluateAll((all) =>
      all.map((one) => one.dataset.rule));
    assert.deepEqual(names, [...names].sort());
  });

  it("makes and ends a temporary change", async () => {
    await live.find(`${RULE} button[data-open]`).click();
    const form = live.find('[data-detail="calls-per-client"] form[data-change]');
    await form.locator("[name=requests]").fill("30");
    await form.locator("[name=for]").fill("10m");
    await form.locator("[name=reason]").fill("<script>hit()</script>\u202e");
    await form.locator("[type=submit]").click();
    const made = await until("the change", async () => {
      const { changes } = (await stage.weir.api("/changes")).json;
      return changes.find(({ rule }) => rule === "calls-per-client");
    });
    await live.find(`button[data-end="${made.id}"]`).click();
    await until("the end of the change", async () => {
      return (await stage.weir.api("/changes")).json.changes.length === 0;
    });
  });

  it("leads from a limited counter to its state", async () => {
    await live.show("limited");
    await live.find('#limited-list [data-counter] a[href^="#/counter"]').first().click();
    await live.state("counter", "ready");
    await live.see("#counter-result [data-tier]");
    assert.match(await live.find("#counter-descriptor").inputValue(), /^client=c/);
  });

  it("empties a counter after a question", async () => {
    for (let calls = 0; calls < 4; calls++) await stage.weir.call("shop", [["quiet", "ann"]]);
    const used = async () => JSON.stringify((await stage.weir.api(QUIET)).json);
    const before = await used();
    await live.find("nav a[data-view=counter]").click();
    await live.find("#counter-domain").fill("shop");
    await live.find("#counter-descriptor").fill("quiet=ann");
    await live.find("#counter-show").click();
    await live.see("#counter-result [data-tier]");
    await live.find("#counter-delete").click();
    await live.find("dialog[open] button[value=cancel]").click();
    await live.miss("dialog[open]");
    assert.match(await used(), /"remaining":6/);
    await live.find("#counter-delete").click();
    await live.find("dialog[open] button[value=confirm]").click();
    await until("the empty counter", async () => /"remaining":10/.test(await used()));
    assert.notEqual(await used(), before);
  });

  it("tries a request and takes nothing", async () => {
    await live.find("nav a[data-view=try]").click();
    await live.find("#try-domain").fill("shop");
    await live.find("#try-descriptor").fill("quiet=ben");
    await live.find("#try-hits").fill("4");
    await live.find("#try-limit").fill("3");
    await live.find("#try-run").click();
    await live.see('#try-result [data-code="OK"]');
    await live.see('#try-result [data-with-limit="OVER_LIMIT"]');
    const counter = await stage.weir.api("/counters?domain=shop&descriptor=quiet=ben");
    assert.match(JSON.stringify(counter.json), /"remaining":10/);
  });

  it("shows the shares of a quota", async () => {
    await live.show("quotas");
    await live.see('#quotas-list [data-rule="per-tenant"]');
  });

  it("reads nothing while it is hidden", async () => {
    await live.show("limited");
    await live.connected();
    const viewers = async () => (await stage.weir.api("/status")).json.viewers;
    await until("the stream", async () => (await viewers()) === 1);
    await live.setHidden(true);
    await live.see("html:not([data-connection=live])");
    await until("the end of the stream", async () => (await viewers()) === 0);
    const sent = live.requests.length;
    // The second tick ends 10 s after the first one. The view reads every 5 s, the stream every 2 s.
    for (let ticks = 0; ticks < 2; ticks++) {
      const tick = async () => (await stage.weir.api("/activity?limit=1")).json.until;
      const last = await tick();
      await until("a tick", async () => (await tick()) !== last);
    }
    assert.deepEqual(live.requests.slice(sent), []);
    await live.setHidden(false);
    await live.connected();
    await until("the stream again", async () => (await viewers()) === 1);
    await until("the list again", () => live.requests.slice(sent).some((url) => url.endsWith("/limited")));
  });

  it("shows a lost Redis, and that it is back", async () => {
    await live.show("health");
    await stage.redis.kill();
    await live.see("#health-problems [data-part=redis]");
    await stage.redis.start();
    await live.miss("#health-problems [data-part]");
  });

  it("reconnects to a weir that was started again", async () => {
    await stage.weir.stop();
    await live.see("html:not([data-connection=live])");
    await stage.weir.start();
    await live.connected();
    await live.assertHarmless();
  });
});
