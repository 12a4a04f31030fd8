#!/usr/bin/python3
"""Tests of count_tests.py, on events and XML shaped as Bazel 4 and gtest 1.12 write them."""

import contextlib
import io
import json
import os
import tempfile
import unittest

import count_tests

GTEST_XML = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" errors="0" name="AllTests">
  <testsuite name="S" tests="4" failures="1" disabled="1" skipped="1" errors="0">
    <testcase name="Good" status="run" result="completed" classname="S" />
    <testcase name="Bad" status="run" result="completed" classname="S">
      <failure message="a.cc:3&#x0A;oh" type=""></failure>
    </testcase>
    <testcase name="Skips" status="run" result="skipped" classname="S">
      <skipped message="a.cc:3&#x0A;no file&#x0A; here"></skipped>
    </testcase>
    <testcase name="DISABLED_X" status="notrun" result="suppressed" classname="S" />
  </testsuite>
</testsuites>"""
GOOD_GTEST_XML = """<testsuites><testsuite name="S">
  <testcase name="One" status="run" result="completed" classname="S" />
  <testcase name="Two/0" status="run" result="completed" classname="S" />
</testsuite></testsuites>"""
EMPTY_GTEST_XML = '<testsuites tests="0" name="AllTests"></testsuites>'
# What Bazel writes for a test that wrote no XML itself.
PLAIN_XML = """<testsuites><testsuite name="a/b" tests="1" failures="0" errors="0">
  <testcase name="a/b" status="run" duration="0" time="0"></testcase>
  <system-out>5 passed</system-out></testsuite></testsuites>"""
CRASH_XML = """<testsuites><testsuite name="a/b" tests="1" failures="0" errors="1">
  <testcase name="a/b" status="run"><error message="exited with error code 134"></error></testcase>
</testsuite></testsuites>"""


class CountTestsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.files = 0

    def write(self, text):
        self.files += 1
        path = os.path.join(self.folder, f"with space {self.files}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def result(self, label, status, xml, shard=1, attempt=1):
        outputs = [{"name": "test.log", "uri": "file:///nowhere"}]
        if xml is not None:
            path = self.write(xml).replace(" ", "%20")
            outputs.append({"name": "test.xml", "uri": "file://" + path})
        key = {"label": label, "run": 1, "shard": shard, "attempt": attempt}
        return {"id": {"testResult": key},
                "testResult": {"status": status, "testActionOutput": outputs}}

    def completed(self, label, success):
        return {"id": {"targetCompleted": {"label": label}},
                "completed": {"success": True} if success else {}}

    def finished(self, name="SUCCESS"):
        return {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": name}}}

    def count(self, *events):
        tally = count_tests.count_invocation([json.dumps(event) for event in events])
        return tally.passed, tally.failed, tally.skipped

    def run_main(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = count_tests.main(list(arguments))
        return status, out.getvalue().splitlines()

    def test_counts_each_gtest_case(self):
        counts = self.count(self.result("//a:b", "FAILED", GTEST_XML), self.finished("TESTS_FAILED"))
        self.assertEqual(counts, (1, ["//a:b S.Bad"], [
            ("//a:b S.Skips", "no file here"), ("//a:b S.DISABLED_X", "disabled")]))

    def test_other_targets_count_as_one(self):
        counts = self.count(self.result("//a:b", "PASSED", PLAIN_XML), self.finished())
        self.assertEqual(counts, (1, [], []))

    def test_crash_and_missing_or_broken_xml_are_one_failure_each(self):
        for xml in (CRASH_XML, None, "<testsuites><testca"):
            with self.subTest(xml=xml):
                passed, failed, _ = self.count(
                    self.result("//a:b", "FAILED", xml), self.finished("TESTS_FAILED"))
                self.assertEqual((passed, len(failed)), (0, 1))

    def test_failed_after_its_last_case_passed(self):
        passed, failed, _ = self.count(
            self.result("//a:leaks", "FAILED", GOOD_GTEST_XML), self.finished("TESTS_FAILED"))
        self.assertEqual((passed, failed), (2, ["//a:leaks (FAILED)"]))

    def test_timeout_is_named(self):
        _, failed, _ = self.count(self.result("//a:b", "TIMEOUT", None), self.finished())
        self.assertEqual(failed, ["//a:b (TIMEOUT)"])

    def test_passed_without_running_anything_is_a_failure(self):
        for xml in (EMPTY_GTEST_XML, None):
            with self.subTest(xml=xml):
                _, failed, _ = self.count(self.result("//a:b", "PASSED", xml), self.finished())
                self.assertEqual(failed, ["//a:b (passed, but ran no test)"])

    def test_last_attempt_counts_and_shards_add_up(self):
        passed, failed, _ = self.count(
            self.result("//a:b", "FAILED", CRASH_XML, shard=1, attempt=1),
            self.result("//a:b", "PASSED", GOOD_GTEST_XML, shard=1, attempt=2),
            self.result("//a:b", "PASSED", EMPTY_GTEST_XML, shard=2),
            self.finished())
        self.assertEqual((passed, failed), (2, []))

    def test_target_that_did_not_build(self):
        _, failed, _ = self.count(
            self.completed("//a:built", True), self.completed("//a:b", False),
            self.finished("BUILD_FAILURE"))
        self.assertEqual(failed, ["//a:b (did not build)"])

    def test_other_failure_of_bazel(self):
        passed, failed, _ = self.count(
            self.result("//a:b", "PASSED", GOOD_GTEST_XML), self.finished("PARSING_FAILURE"))
        self.assertEqual((passed, failed), (2, ["bazel ended with PARSING_FAILURE"]))

    def test_cut_short(self):
        lines = [json.dumps(self.result("//a:b", "PASSED", GOOD_GTEST_XML)), '{"id": {"testRe']
        tally = count_tests.count_invocation(lines)
        self.assertEqual((tally.passed, tally.failed), (2, ["bazel was cut short"]))

    def test_main_adds_passes_up(self):
        good = self.write("\n".join(json.dumps(event) for event in (
            self.result("//a:b", "PASSED", GOOD_GTEST_XML), self.finished())))
        status, lines = self.run_main("opt=" + good, "asan=" + good)
        self.assertEqual((status, lines[-1]), (0, "4 passed, 0 failed, 0 skipped"))

    def test_main_fails_with_a_failure_and_says_why_something_was_skipped(self):
        bad = self.write("\n".join(json.dumps(event) for event in (
            self.result("//a:b", "FAILED", GTEST_XML), self.finished("TESTS_FAILED"))))
        status, lines = self.run_main("opt=" + bad)
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 2 skipped"))
        self.assertIn("skipped [opt] //a:b S.Skips: no file here", lines)
        self.assertIn("FAILED [opt] //a:b S.Bad", lines)

    def test_main_fails_where_nothing_ran(self):
        nothing = self.write(json.dumps(self.finished()))
        status, lines = self.run_main("opt=" + nothing)
        self.assertEqual((status, lines[-1]), (1, "0 passed, 0 failed, 0 skipped"))

    def test_main_fails_without_a_results_file(self):
        status, lines = self.run_main("opt=" + os.path.join(self.folder, "none"))
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.run_main("opt")[0], 2)


if __name__ == "__main__":
    unittest.main()
