// The pure modules of the live page: texts, numbers, descriptors, events and charts.
import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { paths, peak } from "../../ui/chart.js";
import {
  cut, descriptorOf, duration, historyText, isChangeOf, link, number, parseHash, parseLimit, rate, visible,
} from "../../ui/format.js";
import { EVENT_MAX, EventReader } from "../../ui/sse.js";

describe("texts of requests", () => {
  it("show special characters", () => {
    for (const [text, shown] of [
      ["plain gr\u00fcn \u{1f600}", "plain gr\u00fcn \u{1f600}"],
      ["a\nb\t\0", "a\\u{a}b\\u{9}\\u{0}"],
      ["\u001b[31m\u009b\u007f", "\\u{1b}[31m\\u{9b}\\u{7f}"],
      ["\u202eright\u2066\u200f\u061c", "\\u{202e}right\\u{2066}\\u{200f}\\u{61c}"],
      ["\u200b\ufeff\u00ad\u2028", "\\u{200b}\\u{feff}\\u{ad}\\u{2028}"],
      ["\ud800x", "\\u{d800}x"],
      ["\u{e0041}", "\\u{e0041}"],
      ["<script>&amp;", "<script>&amp;"],
    ]) {
      assert.equal(visible(text), shown);
    }
  });

  it("are cut at a character, with their length", () => {
    assert.equal(cut("gr\u00fcn", 4), "gr\u00fcn");
    assert.equal(cut("gr\u00fcn", 3), "gr\u00fc\u2026 (4 characters)");
    assert.equal(cut("\u{1f600}".repeat(3), 3), "\u{1f600}".repeat(3));
    assert.equal(cut("\u{1f600}".repeat(3), 2), "\u{1f600}\u{1f600}\u2026 (3 characters)");
    const long = cut("A".repeat(65_536));
    assert.ok(long.length < 200 && long.endsWith("(65,536 characters)"), long);
    assert.ok(cut("\u202e".repeat(65_536)).length < 2000);
  });
});

describe("numbers", () => {
  it("have all digits, or a dash", () => {
    assert.equal(number(9007199254740991), "9,007,199,254,740,991");
    for (const unknown of [null, undefined, NaN, "7"]) assert.equal(number(unknown), "\u2013");
    assert.deepEqual([0, 0.1234, 12.34, 1234.5].map(rate), ["0", "0.123", "12.3", "1,235"]);
    assert.deepEqual([0, 0.5, 41, 60, 3661, 200_000].map(duration),
      ["0 s", "0.5 s", "41 s", "1 min", "1 h 1 min", "2 d 7 h"]);
  });

  it("are read as `weir change` reads them", () => {
    assert.deepEqual(parseLimit("10"), { requests: 10 });
    assert.deepEqual(parseLimit(" 10:20 "), { requests: 10, burst: 20 });
    assert.deepEqual(parseLimit("5, 100"), [{ requests: 5 }, { requests: 100 }]);
    for (const wrong of ["", "x", "1.5", "-1", "1:2:3", "5,", "9007199254740993"]) {
      assert.throws(() => parseLimit(wrong), /write the limit/, wrong);
    }
  });
});

describe("addresses", () => {
  it("keep every descriptor", () => {
    for (const descriptor of ["k=v", "k=a&b#c?d=%00", "k=\u202e\n\t\\,x", "k=" + "A".repeat(65_536)]) {
      const { view, params } = parseHash(link("counter", { domain: "<b>", descriptor }));
      assert.deepEqual([view, params.get("domain"), params.get("descriptor")], ["counter", "<b>", descriptor]);
    }
    assert.equal(link("rules"), "#/rules");
    assert.equal(parseHash("#main").view, "");
  });

  it("lead to a counter only with every entry", () => {
    for (const [selector, values, descriptor] of [
      ["client", { client: "acme" }, "client=acme"],
      ["path=/login,ip", { ip: "10.0.0.1" }, "path=/login,ip=10.0.0.1"],
      ["path=/a\\,b,ip", { ip: "c,d\\" }, "path=/a\\,b,ip=c\\,d\\\\"],
      ["key=\\regex:x", {}, "key=regex:x"],
      ["ip=cidr:10.0.0.0/8", { ip: "10.1.2.3" }, "ip=10.1.2.3"],
      ["ip=cidr:10.0.0.0/8", {}, null],
      ["path=template:/v1/{id}", { "path.id": "7" }, null],
      ["path=/img/*", {}, null],
      ["client", {}, null],
      ["client", { client: "a", other: "b" }, null],
      ["a\\=b", { "a=b": "c" }, null],
      ["__proto__", {}, null],
    ]) {
      assert.equal(descriptorOf(selector, values), descriptor, selector);
    }
  });
});

describe("temporary changes", () => {
  it("are at the row of their rule only", () => {
    const [row, named] = [{ domain: "d", rule: "client" }, { domain: "d", rule: "name", selector: "path=/a" }];
    for (const [change, target, expected] of [
      [{ domain: "d", rule: "client" }, row, true],
      [{ domain: "e", rule: "client" }, row, false],
      [{ domain: "d", descriptor: "client=a" }, row, false],
      [{ domain: "d", rule: "name", selector: "path=/a" }, named, true],
      // Another rule with the same name, and a removed rule whose selector is the name of this one.
      [{ domain: "d", rule: "name", selector: "path=/b" }, named, false],
      [{ domain: "d", rule: "name" }, named, false],
    ]) {
      assert.equal(isChangeOf(change, target), expected, JSON.stringify(change));
    }
  });
});

describe("events", () => {
  const text = "retry: 3000\nevent: tick\r\ndata: {\"a\":\ndata: 1}\n\n: comment\n\ndata: x\r\n\r\nevent: lost\n\n";
  const expected = [["tick", '{"a":\n1}'], ["message", "x"]];

  it("are read however the stream is cut", () => {
    for (let size = 1; size <= text.length; size++) {
      const seen = [];
      const reader = new EventReader((...event) => seen.push(event));
      for (let at = 0; at < text.length; at += size) reader.push(text.slice(at, at + size));
      assert.deepEqual(seen, expected, `pieces of ${size}`);
      assert.equal(reader.retry, 3000);
    }
  });

  it("have a bound", () => {
    const reader = new EventReader(() => {});
    const line = "A".repeat(1 << 20);
    assert.throws(() => {
      for (let sent = 0; sent <= EVENT_MAX; sent += line.length) reader.push(`data: ${line}\n`);
    }, /too large/);
    assert.throws(() => new EventReader(() => {}).push("A".repeat(EVENT_MAX + 1)), /too large/);
  });
});

describe("histories", () => {
  const history = { within: [1, null, 3], near: [0, null, 1], over: [2, null, 0], fallback: [0, null, 0] };

  it("are columns without those that are not known", () => {
    assert.equal(peak(history), 4);
    const drawn = Object.fromEntries(paths(history, 4).map(({ name, path }) => [name, path]));
    assert.equal(drawn.over, "M0 100.00v-50.00h0.9v50.00z");
    assert.equal(drawn.within, "M0 50.00v-25.00h0.9v25.00zM2 75.00v-75.00h0.9v75.00z");
    assert.equal(drawn.fallback, "");
    assert.deepEqual(paths({}, 0).map(({ path }) => path), ["", "", "", ""]);
  });

  it("have words", () => {
    assert.equal(historyText(history),
      "last ten minutes: 4 passed, 1 near the limit, 2 denied, 0 by the fallback");
    assert.match(historyText({ within: [null] }), /no decision is recorded/);
    assert.match(historyText(undefined), /no decision is recorded/);
  });
});
