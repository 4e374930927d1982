"""Asks weir whether requests of a user may pass: client.py ADDRESS

docs/start/clients.md has the command that generates the package `envoy`.
"""

import sys

import grpc
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from envoy.service.ratelimit.v3.rls_pb2_grpc import RateLimitServiceStub


def may_pass(weir, user):
    descriptor = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key="user", value=user)])
    request = RateLimitRequest(domain="demo", descriptors=[descriptor])
    try:
        response = weir.ShouldRateLimit(request, timeout=0.1)
    except grpc.RpcError as error:
        # No decision. This program lets the request pass.
        print(error.code(), error.details(), file=sys.stderr)
        return True
    return response.overall_code != RateLimitResponse.OVER_LIMIT


# One channel for the whole process: threads can share it, and it reconnects by itself.
with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = RateLimitServiceStub(channel)
    for _ in range(4):
        print("pass" if may_pass(stub, "alice") else "stop")
