#!/usr/bin/python3
"""This source tree is tidy: deploy/tools/tidy.py finds nothing in it.

Looks at the whole tree, not at declared inputs: Bazel links this file from where it lies, and the
tree is around it.
"""

import os
import unittest

# Puts deploy/tools on the path.
import planted_tree  # noqa: F401
import tidy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


class TreeTest(unittest.TestCase):

    def test_sees_the_tree(self):
        paths = tidy.SourceTree(ROOT).paths
        for path in ("WORKSPACE", "kernels/backend.h", "tests/tidy/tree_test.py"):
            self.assertIn(path, paths)

    def test_is_tidy(self):
        found = [str(finding) for finding in tidy.findings(ROOT)]
        if found:
            self.fail(f"{len(found)} findings\n" + "\n".join(found))


if __name__ == "__main__":
    unittest.main()
