"""Asks weir whether four requests of a user may pass: client.py ADDRESS [DEADLINE_MS]

docs/start/clients.md has the command that generates the package `envoy`.
"""

import json
import sys
from collections import Counter

import grpc
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from envoy.service.ratelimit.v3.rls_pb2_grpc import RateLimitServiceStub
from google.protobuf.wrappers_pb2 import UInt64Value

OPTIONS = [
    # All addresses of the name get calls.
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    # A ping detects a connection that hangs.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # The longest pause before the channel connects again.
    ("grpc.max_reconnect_backoff_ms", 5_000),
]


class Limiter:
    """Decides requests. Without a decision they pass."""

    def __init__(self, channel):
        self.weir = RateLimitServiceStub(channel)
        self.failures = Counter()

    def may_pass(self, user, hits, deadline):
        entry = RateLimitDescriptor.Entry(key="user", value=user)
        descriptor = RateLimitDescriptor(entries=[entry], hits_addend=UInt64Value(value=hits))
        request = RateLimitRequest(domain="demo", descriptors=[descriptor])
        try:
            response = self.weir.ShouldRateLimit(request, timeout=deadline)
        except grpc.RpcError as error:
            self.failures[error.code().name] += 1
            print("no decision:", error.code().name, error.details(), file=sys.stderr)
            return True
        return response.overall_code != RateLimitResponse.OVER_LIMIT


def main(address, deadline_ms=50):
    # One channel for the whole process: threads share it, and it reconnects.
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        limiter = Limiter(channel)
        # A peek (0 hits) connects before the first request.
        limiter.may_pass("alice", hits=0, deadline=1)
        for _ in range(4):
            passes = limiter.may_pass("alice", hits=1, deadline=int(deadline_ms) / 1000)
            print("pass" if passes else "stop")
        if limiter.failures:
            print("failures:", dict(limiter.failures), file=sys.stderr)


main(*sys.argv[1:])
