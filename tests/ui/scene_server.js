// A server with the files of ui/ and the fixed scene. It answers reads only.
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname } from "node:path";

import { ROOT } from "./packages.js";
import * as scene from "./scene.js";

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const PAGES = {
  "/status": scene.STATUS, "/activity": scene.ACTIVITY, "/top": scene.TOP, "/limited": scene.LIMITED,
  "/quotas": scene.QUOTAS, "/changes": scene.CHANGES,
};

function answer(request, response) {
  const { pathname } = new URL(request.url, "http://scene");
  const files = new Map(readdirSync(`${ROOT}ui`).map((name) => [`/ui/${name}`, name]));
  files.set("/", "index.html");
  if (pathname === "/live") {
    // The stream stays open, so that the page is connected.
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(`retry: 3000\nevent: tick\ndata: ${JSON.stringify(scene.LIVE)}\n\n`);
  } else if (files.has(pathname)) {
    const name = files.get(pathname);
    response.writeHead(200, { "content-type": TYPES[extname(name)] ?? "application/octet-stream" });
    response.end(readFileSync(`${ROOT}ui/${name}`));
  } else if (pathname in PAGES) {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(PAGES[pathname]));
  } else {
    response.writeHead(404).end();
  }
}

// The server, and its origin.
export async function serveScene() {
  const server = createServer(answer).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}
