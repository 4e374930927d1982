// Writes docs/operate/live-page/{light,dark,phone}.png from the fixed scene.
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";

import { LivePage, launch } from "./live_page.js";
import { ROOT } from "./packages.js";
import { AT } from "./scene.js";
import { serveScene } from "./scene_server.js";

const FOLDER = `${ROOT}docs/operate/live-page`;
const SHOTS = [
  { name: "light", view: "rules", options: { colorScheme: "light" } },
  { name: "dark", view: "health", options: { colorScheme: "dark" } },
  { name: "phone", view: "limited", options: { colorScheme: "light", viewport: { width: 390, height: 780 } } },
];

const { server, origin } = await serveScene();
const browser = await launch();
try {
  mkdirSync(FOLDER, { recursive: true });
  for (const { name, view, options } of SHOTS) {
    const live = await LivePage.open(browser, origin, { ...options, reducedMotion: "reduce" });
    // The page is loaded again with the clock of the scene, so that no age depends on the day.
    await live.page.clock.setFixedTime(new Date(AT));
    await live.page.reload();
    await live.connected();
    await live.show(view);
    // Before the picture, for which the driver sets styles.
    await live.assertHarmless();
    const path = `${FOLDER}/${name}.png`;
    await live.page.screenshot({ path });
    // Fewer colours make a smaller file, where the tool is installed.
    spawnSync("pngquant", ["--force", "--ext", ".png", "--strip", path], { stdio: "ignore" });
    await live.close();
    process.stdout.write(`${path}\n`);
  }
} finally {
  await browser.close();
  server.closeAllConnections();
  server.close();
}
