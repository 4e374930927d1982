// The fixed scene of the screenshots has the fields of real responses.
import assert from "node:assert/strict";
import { after, before, it } from "node:test";

import { ACTIVITY, LIMITED, STATUS } from "./scene.js";
import { Stage } from "./stage.js";
import { until } from "./until.js";

const stage = new Stage();
before(() => stage.start());
after(() => stage.stop());

// The paths of fields of `scene` that `real` lacks. Null and empty lists have no fields.
function missing(scene, real, path) {
  if (scene === null || real === null || typeof scene !== "object") return [];
  if (Array.isArray(scene)) {
    return scene.length && real?.length ? missing(scene[0], real[0], `${path}[]`) : [];
  }
  return Object.keys(scene).flatMap((key) =>
    key in real ? missing(scene[key], real[key], `${path}.${key}`) : [`${path}.${key}`]);
}

it("has only fields that weir sends", { timeout: 120_000 }, async () => {
  const rows = async (path, list) => {
    const { json } = await stage.weir.api(path);
    return json?.[list].length ? json : null;
  };
  const activity = await until("/activity", () => rows("/activity", "rules"));
  const limited = await until("/limited", () => rows("/limited", "counters"));
  const { json: status } = await stage.weir.api("/status");
  const pages = [[STATUS, status, "/status"], [ACTIVITY, activity, "/activity"], [LIMITED, limited, "/limited"]];
  // `selector` stands only where it differs from `rule`.
  const found = pages.flatMap(([scene, real, path]) => missing(scene, real, path));
  assert.deepEqual(found.filter((path) => !path.endsWith(".selector")), []);
});
