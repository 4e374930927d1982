// Requests to the admin port that has served the page. The token goes to this origin only.

// Milliseconds for a response.
const TIMEOUT = 15_000;
const KEY = "weir-token";

let token = load();

function load() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export const hasToken = () => token !== "";

let saved = 0;

// How often a token was saved or removed since the page was opened.
export const tokenCount = () => saved;

// Keeps a token for this tab; an empty one removes it. Throws an error that says what to write.
export function setToken(text) {
  const given = text.trim();
  if (!/^[\x21-\x7e]*$/.test(given)) throw new Error("a token has visible ASCII characters only");
  token = given;
  saved += 1;
  try {
    if (given) sessionStorage.setItem(KEY, given);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage the token stays until the page is left.
  }
}

export class ApiError extends Error {
  // `status` is 0 if there is no response.
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

// An address below that of the page, also behind a proxy that adds a path.
function address(path) {
  const url = new URL(path, document.baseURI);
  if (url.origin !== location.origin) throw new Error("the address is not of this origin");
  return url;
}

// Sends a request, and returns the response if it is a success.
export async function open(path, { method = "GET", body, user, signal } = {}) {
  const headers = {};
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  if (user) headers["x-weir-user"] = user;
  const options = { mode: "same-origin", redirect: "error", cache: "no-store", referrerPolicy: "no-referrer" };
  const sent = body === undefined ? undefined : JSON.stringify(body);
  let response;
  try {
    response = await fetch(address(path), { method, headers, body: sent, signal, ...options });
  } catch (error) {
    if (signal?.aborted && signal.reason?.name !== "TimeoutError") throw error;
    throw new ApiError(0, "weir does not answer; the page tries again");
  }
  if (response.ok) return response;
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  throw new ApiError(response.status, await reason(response), retryAfter);
}

async function reason(response) {
  try {
    const { error } = JSON.parse(await response.text());
    if (typeof error === "string" && error !== "") return error;
  } catch {
    // Not JSON: the status says what there is to say.
  }
  return `weir answers with status ${response.status}`;
}

// The JSON of a response. `signal` ends the request, and so does a timeout.
export async function api(path, { signal, ...options } = {}) {
  const own = new AbortController();
  const stop = () => own.abort(signal.reason);
  const timer = setTimeout(() => own.abort(new DOMException("timeout", "TimeoutError")), TIMEOUT);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  try {
    const response = await open(path, { ...options, signal: own.signal });
    return await response.json();
  } catch (error) {
    if (signal?.aborted || error instanceof ApiError) throw error;
    throw new ApiError(0, "the response of weir is incomplete; the page tries again");
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

// A path with a query. Parameters without a value are left out.
export function withQuery(path, params) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null);
  return `${path}?${new URLSearchParams(given)}`;
}

// Repeats `run(signal)` while it is started and the page is visible. The pause of `seconds` begins when a run
// has ended, so a slow service gets one request at a time.
export function poller(seconds, run) {
  let active = false;
  let current = null;
  let timer = 0;
  const round = async () => {
    clearTimeout(timer);
    current?.abort();
    if (!active || document.hidden) return;
    const own = new AbortController();
    current = own;
    try {
      await run(own.signal);
    } catch (error) {
      if (!own.signal.aborted) console.warn(error);
    }
    if (own === current && active && !document.hidden) timer = setTimeout(round, seconds * 1000);
  };
  document.addEventListener("visibilitychange", round);
  return {
    start() {
      active = true;
      return round();
    },
    stop() {
      active = false;
      clearTimeout(timer);
      current?.abort();
    },
    now: () => (active ? round() : undefined),
  };
}
