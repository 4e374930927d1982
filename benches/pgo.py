"""Builds weir with a profile of a load (profile-guided optimisation).

Usage: pgo.py FOLDER [TARGET_CPU]

Builds an instrumented weir, puts load on it, and builds weir again with the profile of that load. The result is
FOLDER/weir. TARGET_CPU is a value of rustc's target-cpu, such as x86-64-v3 or native.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from weir_process import Weir

RULES = """
domain: pgo
descriptors:
  - key: tenant
    descriptors:
      - { key: fixed, rate_limit: { unit: hour, requests_per_unit: 1000 } }
      - { key: sliding, rate_limit: { algorithm: sliding_window, unit: hour, requests_per_unit: 1000 } }
      - { key: token, rate_limit: { algorithm: token_bucket, unit: hour, requests_per_unit: 1000, burst: 100 } }
      - { key: denied, rate_limit: { unit: hour, requests_per_unit: 1 } }
      - { key: leased, rate_limit: { unit: hour, requests_per_unit: 1000000, mode: leased } }
"""
# The descriptors of each load, and its calls in flight per connection.
LOADS = (
    (["tenant=t{n},fixed=1"], 32),
    (["tenant=t{n},fixed=1"], 1),
    (["tenant=t{n},sliding=1"], 8),
    (["tenant=t{n},token=1"], 8),
    (["tenant=t{n},denied=1", "tenant=t{n},fixed=1"], 8),
    (["tenant=t{n},leased=1"], 8),
    (["none=n{n}"], 8),
)
# Seconds of each load. An instrumented weir counts every branch, so a few suffice.
SECONDS = 4


def sysroot_tool(name):
    """The path of a tool of rustup's component llvm-tools, which is installed if it is missing."""
    sysroot = pathlib.Path(output("rustc", "--print", "sysroot"))
    found = lambda: next(iter(sysroot.glob(f"lib/rustlib/*/bin/{name}")), None)
    if found() is None:
        subprocess.run(["rustup", "component", "add", "llvm-tools"], check=True)
    if found() is None:
        raise SystemExit(f"no {name} in {sysroot}; install the component llvm-tools of this toolchain")
    return found()


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def build(folder, flags):
    """A release build with `flags` in `folder`. A named target keeps the flags away from build scripts."""
    host = next(line[6:] for line in output("rustc", "-vV").splitlines() if line.startswith("host: "))
    command = ["cargo", "build", "--locked", "--release", "--bin", "weir", "--target", host]
    environment = os.environ | {"RUSTFLAGS": " ".join(flags), "CARGO_TARGET_DIR": str(folder)}
    subprocess.run(command, check=True, env=environment)
    return folder / host / "release" / "weir"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def redis(folder):
    """A Redis on a free port, once it listens."""
    port = free_port()
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    for _ in range(200):
        if socket.socket().connect_ex(("127.0.0.1", port)) == 0:
            return server, f"redis://127.0.0.1:{port}"
        time.sleep(0.05)
    server.kill()
    raise SystemExit("redis-server does not listen")


def load(weir, binary, settings):
    rules = pathlib.Path(settings["folder"], "pgo.yaml")
    rules.write_text(RULES)
    with Weir(str(binary), str(rules), settings["weir"]) as running:
        address = "{}:{}".format(*running.grpc)
        for descriptors, streams in LOADS:
            command = [weir, "bench", "--addr", address, "--domain", "pgo", "--duration", str(SECONDS)]
            command += ["--keys", "10000", "--streams", str(streams), *descriptors]
            subprocess.run(command, check=True, env=os.environ | settings["profile"], stdout=subprocess.DEVNULL)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    cpu = [f"-Ctarget-cpu={sys.argv[2]}"] if len(sys.argv) > 2 and sys.argv[2] else []
    raw, profile = folder / "raw", folder / "weir.profdata"
    shutil.rmtree(raw, ignore_errors=True)
    merge = sysroot_tool("llvm-profdata")
    instrumented = build(folder / "instrumented", [f"-Cprofile-generate={raw}", *cpu])
    files = {"LLVM_PROFILE_FILE": str(raw / "%p-%m.profraw")}
    with tempfile.TemporaryDirectory() as temporary:
        load(instrumented, instrumented, {"folder": temporary, "weir": files, "profile": files})
        server, url = redis(temporary)
        try:
            on_redis = files | {"WEIR__REDIS__URL": url, "WEIR__STORE__TIMEOUT": "1s"}
            load(instrumented, instrumented, {"folder": temporary, "weir": on_redis, "profile": files})
        finally:
            server.terminate()
            server.wait()
    subprocess.run([merge, "merge", "-o", profile, raw], check=True)
    optimised = build(folder / "optimised", [f"-Cprofile-use={profile}", *cpu])
    shutil.copy(optimised, folder / "weir")
    print(folder / "weir")


main()
