"""Sends one compressed ShouldRateLimit call and prints the response in hexadecimal.

usage: grpcio.py ADDRESS REQUEST, with the request as the bytes of its message in hexadecimal
"""

import sys

import grpc

address, request = sys.argv[1:]
with grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as channel:
    method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
    call = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
    print(call(bytes.fromhex(request), timeout=10).hex())
