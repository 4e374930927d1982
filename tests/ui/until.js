// Waits for the state of a process that has no event for it.
import { setTimeout as pause } from "node:timers/promises";

// Milliseconds. Redis and weir need seconds to find each other again.
const TIMEOUT = 90_000;
const PAUSE = 50;

// The first truthy result of `attempt`. An attempt that throws counts as a falsy result.
export async function until(what, attempt) {
  const end = Date.now() + TIMEOUT;
  let last;
  while (Date.now() < end) {
    try {
      const result = await attempt();
      if (result) return result;
      last = JSON.stringify(result);
    } catch (error) {
      last = error;
    }
    await pause(PAUSE);
  }
  throw new Error(`not within ${TIMEOUT / 1000} s: ${what}; the last attempt: ${last}`);
}
