// The packages of tests/ui/package.json, which `make` installs in target/ui.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

// The root of the repository.
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const require = createRequire(`${ROOT}target/ui/package.json`);

export const { chromium } = require("playwright-core");
// The text of axe, which checks accessibility inside a page.
export const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
