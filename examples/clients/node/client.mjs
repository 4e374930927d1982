// Asks weir whether four requests of a user may pass: node client.mjs ADDRESS [DEADLINE_MS]
//
// PROTO is the folder proto of weir's repository; empty: the one beside the samples.
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { fileURLToPath } from "node:url";

const proto = process.env.PROTO ?? fileURLToPath(new URL("../../../proto", import.meta.url));
const file = "envoy/service/ratelimit/v3/rls.proto";
const definition = loader.loadSync(file, { keepCase: true, enums: String, includeDirs: [proto] });
const { RateLimitService } = grpc.loadPackageDefinition(definition).envoy.service.ratelimit.v3;

const options = {
  // All addresses of the name get calls.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  // A ping detects a connection that hangs.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 5_000,
  "grpc.keepalive_permit_without_calls": 1,
  // The longest pause before the client connects again.
  "grpc.max_reconnect_backoff_ms": 5_000,
};

// Decides requests. Without a decision they pass.
class Limiter {
  failures = {};

  constructor(address) {
    // One client for the whole process: it reconnects.
    this.weir = new RateLimitService(address, grpc.credentials.createInsecure(), options);
  }

  mayPass(user, hits, deadlineMs) {
    const descriptor = { entries: [{ key: "user", value: user }], hits_addend: { value: hits } };
    const request = { domain: "demo", descriptors: [descriptor] };
    return new Promise((resolve) => {
      this.weir.ShouldRateLimit(request, { deadline: Date.now() + deadlineMs }, (error, response) => {
        if (error) {
          const code = grpc.status[error.code];
          this.failures[code] = (this.failures[code] ?? 0) + 1;
          console.error("no decision:", error.message);
        }
        resolve(response?.overall_code !== "OVER_LIMIT");
      });
    });
  }
}

const [address, deadlineMs = "50"] = process.argv.slice(2);
const limiter = new Limiter(address);
// A peek (0 hits) connects before the first request.
await limiter.mayPass("alice", 0, 1_000);
for (let i = 0; i < 4; i++) {
  console.log((await limiter.mayPass("alice", 1, Number(deadlineMs))) ? "pass" : "stop");
}
if (Object.keys(limiter.failures).length > 0) {
  console.error("failures:", limiter.failures);
}
limiter.weir.close();
