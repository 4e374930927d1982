"""Runs h2spec against the gRPC port of weir, and compares the failed tests with the expected ones.

Usage: run.py H2SPEC WEIR
"""

import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from weir_process import Weir

HERE = pathlib.Path(__file__).parent
RULES = HERE.parent.parent / "examples" / "rules"
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
# Fewer tests mean that h2spec has not run them all.
TESTS_MIN = 140
# Seconds for all tests, of which those that wait for a timeout take 2 s each.
TIMEOUT = 900


def expected_failures():
    """The ids of the tests that may fail."""
    lines = (HERE / "expected_failures.txt").read_text().splitlines()
    return {line.split()[0] for line in lines if line and not line.startswith("#")}


def results(report):
    """All tests of a JUnit report: id, title, and the element of the result or None for a pass. The id is
    h2spec's own, such as `http2/6.9.1/3`, which it also accepts as an argument."""
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        for number, case in enumerate(suite.iter("testcase"), 1):
            found = (case.find(kind) for kind in ("failure", "error", "skipped"))
            result = next((element for element in found if element is not None), None)
            yield f"{case.get('package')}/{number}", case.get("classname"), result


def run(h2spec, host, port):
    """The results of all tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        command = [h2spec, "--host", host, "--port", str(port), "--path", METHOD, "--junit-report", report]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT)
        if not report.exists():
            raise SystemExit(f"h2spec has written no report:\n{done.stdout}")
        return list(results(report))


def main():
    h2spec, binary = sys.argv[1:]
    with Weir(binary, str(RULES)) as weir:
        found = run(h2spec, *weir.grpc)
        alive = weir.process.poll() is None
    not_passed = [(test, title, result) for test, title, result in found if result is not None]
    failed = {test: (title, result.text) for test, title, result in not_passed if result.tag != "skipped"}
    skipped = len(not_passed) - len(failed)
    passed = len(found) - len(not_passed)
    expected = expected_failures()
    new, fixed = sorted(failed.keys() - expected), sorted(expected - failed.keys())
    for test in new:
        title, detail = failed[test]
        print(f"UNEXPECTED FAILURE {test}: {title}\n{detail}")
    for test in fixed:
        print(f"UNEXPECTED PASS {test}: if it passes every time, delete it from expected_failures.txt")
    print(f"{len(found)} tests, {passed} passed, {skipped} skipped, {len(failed)} failed")
    print(f"unexpected failures: {' '.join(new) or 'none'}; unexpected passes: {' '.join(fixed) or 'none'}")
    if not alive:
        print("weir has ended")
    if len(found) < TESTS_MIN:
        print(f"fewer than {TESTS_MIN} tests ran")
    return 1 if new or not alive or len(found) < TESTS_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
