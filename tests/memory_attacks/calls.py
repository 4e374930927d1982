"""The calls of the attacks and of the other client."""

import struct

RATE_LIMIT = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"

RULES = """\
domain: attack
descriptors:
  - key: key
    rate_limit: { unit: second, requests_per_unit: 1000000000 }
"""


def field(number, payload):
    """A length-delimited field of protobuf."""
    length, size = len(payload), b""
    while length >= 128:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + payload


def list_services():
    """A `ServerReflectionRequest` for the names of the services."""
    return field(7, b"")


def framed(message):
    """A message of gRPC, not compressed."""
    return b"\0" + struct.pack(">I", len(message)) + message


def request(descriptors, value):
    """A `RateLimitRequest` with equal descriptors, framed."""
    entry = field(1, b"key") + field(2, value)
    return framed(field(1, b"attack") + field(2, field(1, entry)) * descriptors)
