// Starts the live page: shows the view of the address, keeps the token, and gives events to the views.
import { hasToken, setToken } from "./api.js";
import { $, setText } from "./dom.js";
import { cut, parseHash } from "./format.js";
import { follow } from "./live.js";
import { counterView } from "./view_counter.js";
import { healthView } from "./view_health.js";
import { limitedView } from "./view_limited.js";
import { quotasView } from "./view_quotas.js";
import { rulesView } from "./view_rules.js";
import { tryView } from "./view_try.js";

const root = document.documentElement;
const VIEWS = {
  health: healthView($("view-health")),
  rules: rulesView($("view-rules")),
  limited: limitedView($("view-limited")),
  counter: counterView($("view-counter")),
  try: tryView($("view-try")),
  quotas: quotasView($("view-quotas")),
};
const NAMES = Object.keys(VIEWS);

let shown = null;
// The last event, for a view that is shown between two.
let last = null;
let version = null;

function route() {
  if (location.hash !== "" && !location.hash.startsWith("#/")) return;
  const { view, params } = parseHash(location.hash);
  const name = Object.hasOwn(VIEWS, view) ? view : "health";
  const isFirst = shown === null;
  if (shown !== null && shown !== name) VIEWS[shown].hide?.();
  for (const one of NAMES) {
    $(`view-${one}`).hidden = one !== name;
    const anchor = document.querySelector(`nav a[data-view=${one}]`);
    if (one === name) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  const changed = shown !== name;
  shown = name;
  const title = $(`title-${name}`);
  document.title = `${title.textContent} \u2013 weir`;
  if (changed && !isFirst) title.focus();
  VIEWS[name].show(params);
  if (last) VIEWS[name].tick?.(last);
}

function onTick(event) {
  last = event;
  const { host, version: running } = event.status ?? {};
  version ??= running;
  const isOther = running !== version ? "; reload the page, weir has another version" : "";
  setText($("host"), `${cut(host ?? "", 64)} ${cut(running ?? "", 32)}${isOther}`);
  VIEWS[shown]?.tick?.(event);
}

function onState(state, text) {
  root.dataset.connection = state;
  setText($("connection"), cut(text, 200));
}

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Without storage the choice stays until the page is left.
  }
}

const isDark = () => {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

function showTheme() {
  setText($("theme"), isDark() ? "Light colours" : "Dark colours");
}

function startTheme() {
  const chosen = stored("weir-theme");
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  showTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  $("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    store("weir-theme", root.dataset.theme);
    showTheme();
  });
}

function startToken() {
  const note = (text) => setText($("token-note"), text);
  const save = (text) => {
    try {
      setToken(text);
    } catch (error) {
      note(error.message);
      return;
    }
    $("token").value = "";
    $("token-forget").hidden = !hasToken();
    note(hasToken() ? "a token is kept in this tab" : "only for protected views; kept in this tab");
    VIEWS[shown]?.token?.();
  };
  $("token-forget").hidden = !hasToken();
  if (hasToken()) note("a token is kept in this tab");
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if ($("token").value.trim() !== "") save($("token").value);
  });
  $("token-forget").addEventListener("click", () => {
    save("");
    $("token").focus();
  });
}

function startKeys() {
  const keys = $("keys");
  const on = $("keys-on");
  on.checked = stored("weir-keys") !== "off";
  on.addEventListener("change", () => store("weir-keys", on.checked ? "on" : "off"));
  $("help").addEventListener("click", () => keys.showModal());
  $("keys-close").addEventListener("click", () => keys.close());
  $("skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("main").focus();
  });
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const isTyping = target.closest?.("input, textarea, select, dialog") !== null;
    if (!on.checked || isTyping || event.ctrlKey || event.altKey || event.metaKey) return;
    const view = /^[1-6]$/.test(key) ? NAMES[Number(key) - 1] : null;
    if (view) location.hash = `#/${view}`;
    else if (key === "/") $(`view-${shown}`).querySelector("input, textarea, select")?.focus();
    else if (key === "t") $("token").focus();
    else if (key === "?") keys.showModal();
    else return;
    event.preventDefault();
  });
}

startTheme();
startToken();
startKeys();
addEventListener("hashchange", route);
route();
follow({ onTick, onState }).start();
