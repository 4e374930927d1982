// A stream of RLQS with one bucket, as an Envoy keeps it: a report per second.
import { connect } from "node:http2";

const PATH = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
// Requests per report.
const ALLOWED = 5;

// Protobuf: a varint below 2^53, a field with bytes, and a field with a number.
function varint(value) {
  const bytes = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest % 128) + 128);
  }
}
function field(number, content) {
  const bytes = Buffer.from(content);
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
}
function count(number, value) {
  return Buffer.concat([varint(number * 8), varint(value)]);
}

// RateLimitQuotaUsageReports of proto/envoy/service/rate_limit_quota/v3/rlqs.proto, with one usage.
function report(domain, bucket, seconds) {
  const entry = ([key, value]) => field(1, Buffer.concat([field(1, key), field(2, value)]));
  const id = Buffer.concat(Object.entries(bucket).map(entry));
  const elapsed = seconds ? count(1, seconds) : Buffer.alloc(0);
  const usage = Buffer.concat([field(1, id), field(2, elapsed), count(3, ALLOWED), count(4, 0)]);
  return Buffer.concat([field(1, domain), field(2, usage)]);
}

// A message of gRPC: not compressed, its length, its bytes.
function framed(message) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

export class QuotaStream {
  // `address` is host:port of the gRPC listener. `instance` has visible ASCII characters only.
  constructor(address, domain, bucket, instance) {
    this.session = connect(`http://${address}`);
    this.stream = this.session.request({
      ":method": "POST",
      ":path": PATH,
      "content-type": "application/grpc",
      te: "trailers",
      "x-weir-instance": instance,
    });
    // Resolves with the first message, which assigns a share.
    this.assigned = new Promise((resolve, reject) => {
      const ended = (why) => reject(new Error(`the stream of quotas ended: ${why}`));
      this.stream.once("data", resolve);
      this.stream.once("trailers", (trailers) => ended(JSON.stringify(trailers)));
      this.stream.once("error", ended);
      this.session.once("error", ended);
    });
    // Later ends are those of weir or of this test.
    this.assigned.catch(() => {});
    this.session.on("error", () => {});
    this.stream.on("error", () => {});
    this.stream.write(framed(report(domain, bucket, 0)));
    this.timer = setInterval(() => {
      if (this.stream.writable) this.stream.write(framed(report(domain, bucket, 1)));
    }, 1000);
  }

  stop() {
    clearInterval(this.timer);
    this.session.destroy();
  }
}
