#!/usr/bin/python3
"""Run bits, first lines and strict mode of scripts; include guards of headers."""

import unittest

from planted_tree import PlantedTreeTest
from tidy_rules.guards import check_guards
from tidy_rules.scripts import check_scripts

BASH = "#!/usr/bin/env bash\nset -euo pipefail\n"


class ScriptsTest(PlantedTreeTest):

    def test_clean(self):
        self.assert_clean(check_scripts, {"a.sh": BASH, "b.py": "#!/usr/bin/python3\n", "c": ""},
                          executable=("a.sh", "b.py"))

    def test_run_bits(self):
        self.assertEqual(self.found(check_scripts, {"a.sh": BASH, ".ci/run": BASH, "b.txt": ""},
                                    executable=("b.txt",)),
                         [".ci/run: a script without its run bit",
                          "a.sh: a script without its run bit",
                          "b.txt: has a run bit, but no #! line"])

    def test_first_line_and_strict_mode(self):
        self.assertEqual(self.found(check_scripts, {"a.sh": "echo\n"}), ["a.sh:1: has no #! line"])
        self.assertEqual(
            self.found(check_scripts, {"a": "#!/bin/bash\nset -e\n"}, executable=("a",)),
            ["a: bash without 'set -euo pipefail'"])


class GuardsTest(PlantedTreeTest):

    GUARDED = "#ifndef PERIGEE_A_B_C_H_\n#define PERIGEE_A_B_C_H_\n#endif  // PERIGEE_A_B_C_H_\n"

    def test_guard_is_the_path(self):
        self.assert_clean(check_guards, {"a/b_c.h": "// What it is.\n" + self.GUARDED})
        for path, text in (("a/d.h", self.GUARDED), ("a/b_c.h", "#pragma once\n"),
                           ("a/b_c.h", self.GUARDED.replace("define PERIGEE", "define PERIGE")),
                           ("a/b_c.h", self.GUARDED + "int x;\n")):
            with self.subTest(path=path, text=text):
                self.assertEqual(len(self.found(check_guards, {path: text})), 1)


if __name__ == "__main__":
    unittest.main()
