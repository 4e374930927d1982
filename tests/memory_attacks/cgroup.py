"""A memory cgroup for one process: of version 1 or 2, or by systemd-run."""

import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
NEEDED = """\
make memory-attacks needs the right to make a memory cgroup. One of these is enough:
- root, and cgroup v1 at /sys/fs/cgroup/memory or cgroup v2 at /sys/fs/cgroup, mounted for writing
- systemd: `systemd-run --user --scope -p MemoryMax=256M true` must succeed (as root: without --user)"""


class MemoryCgroup:
    """A cgroup of `mib` MiB without swap, for the `with` block. A command behind `prefix` runs in it, with the
    process id of the prefix."""

    def __init__(self, mib):
        self.folder = None
        name, limit = f"weir-attacks-{os.getpid()}", str(mib << 20)
        v1 = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
        v2 = {"memory.max": limit, "memory.swap.max": "0"}
        if self.make(ROOT / "memory" / name, v1) or self.make(ROOT / name, v2):
            self.prefix = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.folder)]
            return
        user = [] if os.geteuid() == 0 else ["--user"]
        limits = ["-p", f"MemoryMax={mib}M", "-p", "MemorySwapMax=0"]
        self.prefix = ["systemd-run", *user, "--scope", "--quiet", "--collect", *limits]
        try:
            works = subprocess.run([*self.prefix, "true"], capture_output=True, timeout=30).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            works = False
        if not works:
            raise SystemExit(NEEDED)

    def make(self, folder, limits):
        """Makes a cgroup by files. The first limit is necessary; a kernel may lack the others."""
        try:
            folder.mkdir()
        except OSError:
            return False
        # A folder outside of a cgroup file system has no such file.
        necessary, *others = limits
        try:
            if not (folder / necessary).exists():
                raise OSError(f"{folder} has no {necessary}")
            (folder / necessary).write_text(limits[necessary])
        except OSError:
            folder.rmdir()
            return False
        for other in others:
            if (folder / other).exists():
                (folder / other).write_text(limits[other])
        self.folder = folder
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The kernel may need a moment to remove the process that has ended.
        for _ in range(50 if self.folder else 0):
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.1)
