// The live page in Chromium, with everything that a page must not do.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

import { AXE, chromium } from "./packages.js";

// Names of Chromium on the path, Debian's first. CHROMIUM is a path that replaces them.
const NAMES = ["chromium", "chromium-browser", "google-chrome"];
// Milliseconds for a state of the page. A rate needs a tick of 10 s.
const TIMEOUT = 60_000;
// Chromium writes this line for every response with an error, which the page shows by itself.
const FAILED_RESPONSE = "Failed to load resource";

export const VIEWS = ["health", "rules", "limited", "counter", "try", "quotas"];

export function launch() {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const paths = NAMES.flatMap((name) => folders.map((folder) => join(folder, name)));
  const executablePath = process.env.CHROMIUM ?? paths.find((path) => existsSync(path));
  if (!executablePath) throw new Error("Chromium is missing: install chromium, or set CHROMIUM to its path");
  // Root cannot use the sandbox, and the only page is weir's. playwright-core leaves the sandbox off.
  return chromium.launch({ executablePath });
}

export class LivePage {
  // Opens the page of `origin` in a new context, so without a token of another test.
  // `script` runs in the page before its own scripts.
  static async open(browser, origin, { script, ...options } = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    context.setDefaultTimeout(TIMEOUT);
    const page = await context.newPage();
    const live = new LivePage(page, origin);
    if (script) await page.addInitScript(script);
    await page.goto(`${origin}/`);
    return live;
  }

  constructor(page, origin) {
    this.page = page;
    this.origin = origin;
    this.problems = [];
    this.requests = [];
    const problem = (what) => this.problems.push(what);
    page.on("console", (message) => {
      const text = message.text();
      if (message.type() === "error" && !text.startsWith(FAILED_RESPONSE)) problem(`console: ${text}`);
    });
    page.on("pageerror", (error) => problem(`exception: ${error}`));
    page.on("dialog", (dialog) => {
      problem(`dialog: ${dialog.message()}`);
      return dialog.dismiss();
    });
    page.on("popup", (popup) => problem(`popup: ${popup.url()}`));
    page.on("request", (request) => {
      this.requests.push(request.url());
      if (!request.url().startsWith(`${origin}/`)) problem(`foreign request: ${request.url()}`);
    });
  }

  find(selector) {
    return this.page.locator(selector);
  }

  // Waits until `selector` is visible.
  async see(selector) {
    await this.find(selector).first().waitFor();
  }

  // Waits until `selector` is gone.
  async miss(selector) {
    await this.find(selector).first().waitFor({ state: "detached" });
  }

  async connected() {
    await this.see("html[data-connection=live]");
  }

  // Opens a view by its link, and waits until it has drawn.
  async show(view, state = "ready") {
    await this.find(`nav a[data-view=${view}]`).click();
    await this.state(view, state);
  }

  async state(view, state) {
    await this.see(`section#view-${view}[data-state=${state}]`);
  }

  async enterToken(token) {
    await this.find("#token").fill(token);
    await this.find("#token-save").click();
  }

  // Hides the page or shows it. Headless Chromium shows all tabs, so this sets what the document reports.
  async setHidden(hidden) {
    await this.page.evaluate((value) => {
      const report = (name, get) => Object.defineProperty(document, name, { configurable: true, get });
      report("hidden", () => value);
      report("visibilityState", () => (value ? "hidden" : "visible"));
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  }

  // No script of others, no error, no request elsewhere, no sideways scrolling, no text without a bound.
  async assertHarmless() {
    assert.deepEqual(this.problems, []);
    const found = await this.page.evaluate(() => {
      const longest = 4096;
      const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      const wrong = [];
      while (texts.nextNode()) {
        const text = texts.currentNode.data;
        const style = getComputedStyle(texts.currentNode.parentElement);
        if (text.length > longest) wrong.push(`a text of ${text.length} characters`);
        if (/[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/.test(text)) wrong.push(`a control character in ${text}`);
        if (/[\u202a-\u202e\u2066-\u2069]/.test(text) && !/isolate|plaintext/.test(style.unicodeBidi)) {
          wrong.push(`a mark of direction that is not isolated in ${text}`);
        }
      }
      const foreign = "script:not([src]), [onerror], [onload], iframe, object, embed, img[src=x], [style]";
      for (const element of document.querySelectorAll(foreign)) wrong.push(element.outerHTML.slice(0, 200));
      const { scrollWidth, clientWidth } = document.scrollingElement;
      if (scrollWidth > clientWidth) wrong.push(`${scrollWidth} px wide in ${clientWidth} px`);
      return wrong;
    });
    assert.deepEqual(found, []);
  }

  // The violations that axe finds in the page as it is.
  async violations() {
    await this.page.evaluate(AXE);
    const result = await this.page.evaluate(() => globalThis.axe.run(document));
    return result.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  }

  async close() {
    await this.page.context().close();
  }
}
