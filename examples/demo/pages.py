"""The HTTP pages of weir and of Envoy, and a ping of Redis, for checks of their health."""

import http.client
import json
import re
import socket

HOST = "127.0.0.1"
# Seconds that a page may take.
TIMEOUT = 2


def page(port, path):
    """The body of a page with the status 200; `None` without such a response."""
    connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode(errors="replace")
        return body if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def weir_reaches_redis(admin):
    """Whether an instance serves and has reached Redis."""
    status = page(admin, "/status")
    return status is not None and json.loads(status)["store"]["reachable"]


def fallback_decisions(admin):
    """The decisions of an instance by its fallback since its start."""
    metrics = page(admin, "/metrics") or ""
    return sum(int(count) for count in re.findall(r"^weir_fallback_total\{.*\} (\d+)$", metrics, re.MULTILINE))


def envoy_serves(admin):
    return page(admin, "/ready") is not None


def redis_answers(port):
    try:
        with socket.create_connection((HOST, port), TIMEOUT) as connection:
            connection.settimeout(TIMEOUT)
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
