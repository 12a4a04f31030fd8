#!/usr/bin/python3
"""Libraries with several headers and files that nothing builds are found."""

import unittest

from planted_tree import PlantedTreeTest
from tidy_rules.build_files import check_build_files

ONE = """load("//x:y.bzl", "z_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "one",
    srcs = ["one.cc"],
    hdrs = ["one.h"],
    deps = ["//third_party:absl"] + select({"//conditions:default": []}),
)
"""


class BuildFilesTest(PlantedTreeTest):

    def test_one_header_per_library(self):
        sources = {"a/one.cc": "", "a/one.h": "", "a/two.h": ""}
        self.assertEqual(
            self.found(check_build_files, {"a/BUILD": ONE.replace('["one.h"]', '["one.h", "two.h"]'),
                                           **sources}),
            ["a/BUILD: one has 2 headers; one per library: one.h, two.h"])
        self.assertEqual(
            self.found(check_build_files, {"a/BUILD": ONE.replace('["one.h"]', 'glob(["*.h"])'),
                                           **sources}),
            ["a/BUILD: one: hdrs by glob: name the one header"])
        del sources["a/two.h"]
        self.assert_clean(check_build_files, {"a/BUILD": ONE, **sources})

    def test_every_source_is_built(self):
        self.assertEqual(
            self.found(check_build_files, {"a/BUILD": ONE, "a/one.cc": "", "a/one.h": "",
                                           "a/one_test.cc": "", "b/lost_test.py": ""}),
            ["a/one_test.cc: no BUILD file names it, so nothing builds it",
             "b/lost_test.py: no BUILD file names it, so nothing builds it"])
        self.assert_clean(check_build_files, {"BUILD": 'sh_test(name = "a", srcs = ["//a:b/c.h"])',
                                              "a/b/c.h": ""})

    def test_sources_that_are_computed(self):
        build = """
[cc_test(
    name = name + "_test",
    srcs = [name + "_test.cc"],
    data = glob(["*.h"]),
) for name in ["one", "two"]]

z_library(name = "three", srcs = select({"//x:y": ["three.cu"], "//conditions:default": []}))
"""
        files = {"a/BUILD": ONE + build, "a/one.cc": "", "a/one.h": "", "a/one_test.cc": "",
                 "a/two_test.cc": "", "a/three.cu": "", "a/other.h": ""}
        self.assert_clean(check_build_files, files)
        self.assertEqual(self.found(check_build_files, {**files, "a/four_test.cc": ""}),
                         ["a/four_test.cc: no BUILD file names it, so nothing builds it"])

    def test_what_does_not_parse_is_a_finding(self):
        for text in ("cc_library(", "x = [][1]"):
            found = self.found(check_build_files, {"a/BUILD": text})
            self.assertTrue(found[0].startswith("a/BUILD: not understood"), found)


if __name__ == "__main__":
    unittest.main()
