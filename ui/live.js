// Follows /live: reads its events, connects again after a loss, and pauses while the page is hidden.
import { api, open } from "./api.js";
import { EventReader } from "./sse.js";

// Milliseconds without a byte after which a connection counts as lost. Events come every 2 s.
const SILENCE = 10_000;
// Milliseconds before the next attempt: the first pause and the longest one.
const PAUSE = 3_000;
const PAUSE_MAX = 30_000;
// The pause while another server or the bound on viewers refuses the stream: /status is read instead.
const POLL = 10_000;

// `onTick` gets the data of each event. `onState` gets `live`, `connecting` or `lost`, and a text.
export function follow({ onTick, onState }) {
  let current = null;
  let timer = 0;
  let pause = PAUSE;

  const stop = () => {
    clearTimeout(timer);
    current?.abort();
    current = null;
  };

  const later = (wait, text) => {
    // Instances that restart get their viewers back one after another.
    const jittered = wait * (0.75 + Math.random() / 2);
    onState("lost", `${text}; next try in ${Math.round(jittered / 1000)} s`);
    timer = setTimeout(start, jittered);
  };

  async function read(own) {
    let silence = 0;
    const listen = () => {
      clearTimeout(silence);
      silence = setTimeout(() => own.abort(), SILENCE);
    };
    listen();
    try {
      const response = await open("live", { signal: own.signal });
      const events = new EventReader((name, data) => {
        if (name !== "tick") return;
        onTick(JSON.parse(data));
        pause = events.retry ?? PAUSE;
        onState("live", "live");
      });
      const decoder = new TextDecoder();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        listen();
        events.push(decoder.decode(value, { stream: true }));
      }
    } finally {
      clearTimeout(silence);
      own.abort();
    }
  }

  // Without a stream, the views get /status every 10 s.
  async function poll(own, error) {
    const status = await api("status", { signal: own.signal });
    if (own !== current) return;
    onTick({ status, rules: null, top: null, point: status.at });
    later(Math.max(POLL, error.retryAfter * 1000), `${error.message}; the page reads the status every 10 s`);
  }

  async function start() {
    stop();
    if (document.hidden) return;
    let own = new AbortController();
    current = own;
    if (document.documentElement.dataset.connection !== "lost") onState("connecting", "connecting");
    let failure = null;
    try {
      await read(own);
    } catch (error) {
      failure = error;
    }
    // Another connection has begun, or the page is hidden.
    if (own !== current) return;
    try {
      if (failure?.status >= 400) {
        own = new AbortController();
        current = own;
        return await poll(own, failure);
      }
    } catch {
      // Neither the stream nor the status: the pause below applies.
    }
    if (own !== current) return;
    later(pause, failure?.status === undefined ? "connection lost" : failure.message);
    pause = Math.min(pause * 2, PAUSE_MAX);
  }

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return start();
    stop();
    onState("connecting", "paused while the page is hidden");
  });
  return { start };
}
