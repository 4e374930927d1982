// Asks weir whether requests of a user may pass: node client.mjs ADDRESS PROTO_FOLDER
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [address, protos] = process.argv.slice(2);
const timeout = 100; // milliseconds

const file = "envoy/service/ratelimit/v3/rls.proto";
const definition = loader.loadSync(file, { keepCase: true, enums: String, includeDirs: [protos] });
const { RateLimitService } = grpc.loadPackageDefinition(definition).envoy.service.ratelimit.v3;

// One client for the whole process: it reconnects by itself.
const weir = new RateLimitService(address, grpc.credentials.createInsecure());

function mayPass(user) {
  const request = { domain: "demo", descriptors: [{ entries: [{ key: "user", value: user }] }] };
  const deadline = Date.now() + timeout;
  return new Promise((resolve) => {
    weir.ShouldRateLimit(request, { deadline }, (error, response) => {
      if (error) {
        // No decision. This program lets the request pass.
        console.error(error.message);
        resolve(true);
      } else {
        resolve(response.overall_code !== "OVER_LIMIT");
      }
    });
  });
}

for (let i = 0; i < 4; i++) {
  console.log((await mayPass("alice")) ? "pass" : "stop");
}
weir.close();
