#!/usr/bin/python3
"""Tests of compile_commands.py on actions shaped as `bazel aquery` prints them."""

import unittest

import compile_commands


def action(source, *more):
    return {"arguments": ["/usr/bin/gcc", "-std=c++0x", "-MD", "-MF", "a.d", *more, "-std=c++20",
                          "-c", source, "-o", "a.o"]}


class CompileCommandsTest(unittest.TestCase):

    def test_drops_what_clang_does_not_know_and_outputs(self):
        (entry,) = compile_commands.entries([action("a/b.cc", "-Wall")], "/execroot")
        self.assertEqual(entry["arguments"],
                         ["/usr/bin/gcc", "-Wall", "-std=c++20", "-c", "a/b.cc"])
        self.assertEqual(entry["file"], "a/b.cc")

    def test_generated_headers_are_at_the_execution_root(self):
        (entry,) = compile_commands.entries(
            [action("a.cc", "-iquote", ".", "-iquote", "bazel-out/bin", "-Iexternal/x")], "/execroot")
        self.assertEqual(entry["arguments"][1:5],
                         ["-iquote", ".", "-iquote", "/execroot/bazel-out/bin"])

    def test_one_entry_per_source_of_ours(self):
        found = compile_commands.entries(
            [action("b.cc", "-fPIC"), action("b.cc"), action("a.cc"), action("external/x.cc"),
             action("bazel-out/bin/x.pb.cc")], "/execroot")
        self.assertEqual([entry["file"] for entry in found], ["a.cc", "b.cc"])


if __name__ == "__main__":
    unittest.main()
