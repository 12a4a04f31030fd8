#!/usr/bin/python3
"""Adds up test cases over several Bazel invocations and prints 'N passed, N failed, N skipped'.

usage: count_tests.py NAME=EVENTS_FILE...

EVENTS_FILE is what `bazel test --build_event_json_file` wrote; it names every target's test.xml. Each
gtest case counts once per invocation; a test target that is no gtest counts as one. A case that is
skipped or disabled is skipped, and listed with its reason. These count as failed, too: a target that
did not build, a test target that failed though no case of it did (a leak found at exit, a timeout)
or that passed without running anything, and an invocation that failed for any other reason or was
cut short. Exit status 0: something ran and nothing failed.
"""

import collections
import json
import sys
import urllib.parse
import xml.etree.ElementTree


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []  # what failed, one line each
        self.skipped = []  # (what, why)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


class Invocation:
    """What one events file says. Events may come in any order and the last line may be cut."""

    def __init__(self, lines):
        self.not_built = []
        self.results = collections.defaultdict(dict)  # label -> (run, shard) -> testResult event
        self.finished = None
        self._attempts = {}
        for line in lines:
            try:
                self._take(json.loads(line))
            except json.JSONDecodeError:
                continue  # the cut last line: self.finished then stays None

    def _take(self, event):
        kind, event_id = next(iter(event["id"].items()))
        if kind == "targetCompleted" and not event.get("completed", {}).get("success"):
            self.not_built.append(event_id["label"])
        elif kind == "testResult":
            key = (event_id["run"], event_id["shard"])
            attempt = (event_id["label"], *key)
            if event_id["attempt"] >= self._attempts.get(attempt, 0):  # only the last one counts
                self._attempts[attempt] = event_id["attempt"]
                self.results[event_id["label"]][key] = event["testResult"]
        elif kind == "buildFinished":
            self.finished = event["finished"]["exitCode"]


def xml_path(result):
    for output in result.get("testActionOutput", []):
        if output["name"] == "test.xml":
            return urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
    return None


def read_cases(path):
    """The testcase elements; none where there is no file or it is not XML."""
    try:
        return list(xml.etree.ElementTree.parse(path).iter("testcase")) if path else []
    except (OSError, xml.etree.ElementTree.ParseError):
        return []


def case_name(label, case):
    suite = case.get("classname")
    return f"{label} {suite}.{case.get('name')}" if suite else label


def skip_reason(skipped):
    # gtest's message starts with FILE:LINE.
    lines = [line.strip() for line in (skipped.get("message") or "").splitlines()]
    return " ".join(line for line in lines[1:] if line) or "no reason given"


def count_target(label, results):
    """One test target; results are those of its runs and shards."""
    tally = Tally()
    for result in results:
        for case in read_cases(xml_path(result)):
            name = case_name(label, case)
            if case.find("failure") is not None or case.find("error") is not None:
                tally.failed.append(name)
            elif case.get("status") == "notrun":
                tally.skipped.append((name, "disabled"))
            elif case.find("skipped") is not None or case.get("result") == "skipped":
                skipped = case.find("skipped")
                tally.skipped.append(
                    (name, "no reason given" if skipped is None else skip_reason(skipped)))
            else:
                tally.passed += 1
    statuses = {result["status"] for result in results}
    bad = sorted(statuses - {"PASSED", "FLAKY"})
    if bad and not tally.failed:
        tally.failed.append(f"{label} ({', '.join(bad)})")
    elif not bad and not tally.passed and not tally.skipped:
        tally.failed.append(f"{label} (passed, but ran no test)")
    return tally


def count_invocation(lines):
    invocation = Invocation(lines)
    tally = Tally()
    for label in sorted(invocation.results):
        tally.add(count_target(label, invocation.results[label].values()))
    for label in sorted(invocation.not_built):
        tally.failed.append(f"{label} (did not build)")
    if invocation.finished is None:
        tally.failed.append("bazel was cut short")
    elif invocation.finished["name"] != "SUCCESS" and not tally.failed:
        tally.failed.append(f"bazel ended with {invocation.finished['name']}")
    return tally


def count_file(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            return count_invocation(lines)
    except OSError as error:
        tally = Tally()
        tally.failed.append(f"no results: {error.strerror}: {path}")
        return tally


def main(arguments):
    if not arguments or not all("=" in argument for argument in arguments):
        print("usage: count_tests.py NAME=EVENTS_FILE...", file=sys.stderr)
        return 2
    total = Tally()
    for argument in arguments:
        name, path = argument.split("=", 1)
        tally = count_file(path)
        for what, why in tally.skipped:
            print(f"skipped [{name}] {what}: {why}")
        for what in tally.failed:
            print(f"FAILED [{name}] {what}")
        print(f"{name}: {tally.passed} passed, {len(tally.failed)} failed, "
              f"{len(tally.skipped)} skipped")
        total.add(tally)
    print(f"{total.passed} passed, {len(total.failed)} failed, {len(total.skipped)} skipped")
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
