// The live page without a mouse, on a phone, in both colour schemes, and by axe.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";

import { LivePage, VIEWS } from "./live_page.js";
import { Stage, TOKEN } from "./stage.js";

// The most presses of Tab to reach an element.
const TABS = 300;

// Moves the focus by Tab to `selector`. Each focused element on the way must show its focus.
async function tabTo(live, selector) {
  for (let presses = 0; presses < TABS; presses++) {
    const [reached, shown, html] = await live.page.evaluate((wanted) => {
      const focused = document.activeElement;
      const style = getComputedStyle(focused);
      const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
      const shown = focused === document.body || outlined || style.boxShadow !== "none";
      return [focused.matches(wanted), shown, focused.outerHTML.slice(0, 200)];
    }, selector);
    assert.ok(shown, `the focus is not visible on ${html}`);
    if (reached) return;
    await live.page.keyboard.press("Tab");
  }
  assert.fail(`Tab does not reach ${selector}`);
}

async function typeInto(live, selector, text) {
  await tabTo(live, selector);
  await live.page.keyboard.press("ControlOrMeta+a");
  await live.page.keyboard.type(text);
}

// Opens every view in turn, as far as it draws without input.
async function eachView(live, check) {
  for (const view of VIEWS) {
    await live.find(`nav a[data-view=${view}]`).click();
    await live.see(`section#view-${view}`);
    if (!["counter", "try"].includes(view)) await live.state(view, "ready");
    await check(view);
  }
}

describe("access to the live page", { timeout: 600_000 }, () => {
  const stage = new Stage();
  before(() => stage.start());
  after(() => stage.stop());
  const open = async (options) => {
    const live = await LivePage.open(stage.browser, stage.weir.origin, options);
    await live.connected();
    await live.enterToken(TOKEN);
    return live;
  };

  it("works with the keyboard alone", async () => {
    const live = await LivePage.open(stage.browser, stage.weir.origin);
    await live.connected();
    await typeInto(live, "#token", TOKEN);
    await tabTo(live, "#token-save");
    await live.page.keyboard.press("Enter");
    await tabTo(live, "nav a[data-view=try]");
    await live.page.keyboard.press("Enter");
    await typeInto(live, "#try-domain", "shop");
    await typeInto(live, "#try-descriptor", "quiet=keys");
    await tabTo(live, "#try-run");
    await live.page.keyboard.press("Enter");
    await live.see('#try-result [data-code="OK"]');
    await stage.weir.call("shop", [["quiet", "keys"]]);
    await tabTo(live, "nav a[data-view=counter]");
    await live.page.keyboard.press("Enter");
    await typeInto(live, "#counter-domain", "shop");
    await typeInto(live, "#counter-descriptor", "quiet=keys");
    await tabTo(live, "#counter-show");
    await live.page.keyboard.press("Enter");
    await live.see("#counter-result [data-tier]");
    await tabTo(live, "#counter-delete");
    await live.page.keyboard.press("Enter");
    await live.see("dialog[open]");
    await live.page.keyboard.press("Escape");
    await live.miss("dialog[open]");
    // No trap: Tab goes through the whole page and comes to its beginning again.
    await tabTo(live, "nav a[data-view=health]");
    await live.assertHarmless();
    await live.close();
  });

  for (const colorScheme of ["light", "dark"]) {
    it(`is clean by axe in ${colorScheme}`, async () => {
      const live = await open({ colorScheme, reducedMotion: "reduce" });
      await eachView(live, async (view) => assert.deepEqual(await live.violations(), [], view));
      const running = await live.page.evaluate(() => document.getAnimations().length);
      assert.equal(running, 0, "animations in spite of prefers-reduced-motion");
      const colour = () => live.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const before = await colour();
      await live.find("#theme").click();
      assert.notEqual(await colour(), before, "the switch of the colours has no effect");
      await live.show("health");
      assert.deepEqual(await live.violations(), []);
      await live.close();
    });
  }

  it("fits a phone of 320 px", async () => {
    const live = await open({ viewport: { width: 320, height: 640 }, hasTouch: true });
    await eachView(live, () => live.assertHarmless());
    await live.close();
  });
});
