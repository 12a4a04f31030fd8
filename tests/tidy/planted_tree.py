"""A small source tree made for one test, and what a check finds in it."""

import os
import sys
import tempfile
import unittest

# Tests run in the workspace's root, in Bazel and by hand.
sys.path.insert(0, os.path.join(os.getcwd(), "deploy/tools"))

from tidy_rules.source_tree import SourceTree  # noqa: E402


class PlantedTreeTest(unittest.TestCase):

    def tree(self, files, executable=()):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for path, text in files.items():
            full = os.path.join(folder.name, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(full, 0o755 if path in executable else 0o644)
        return SourceTree(folder.name)

    def found(self, check, files, **options):
        """The findings as text, in order."""
        return [str(finding) for finding in sorted(check(self.tree(files, **options)))]

    def assert_clean(self, check, files, **options):
        self.assertEqual(self.found(check, files, **options), [])
