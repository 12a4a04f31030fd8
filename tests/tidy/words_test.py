#!/usr/bin/python3
"""Words that do not belong are found in any text file, and only whole ones."""

import unittest

from planted_tree import PlantedTreeTest
from tidy_rules.words import check_words


class WordsTest(PlantedTreeTest):

    def test_finds_each(self):
        for text, word in (
                ("the Routing table", "Routing table"),
                ("a routing_table_", "routing_table"),
                ("// TODO: more", "TODO"),
                ("see /home/me/x", "/home/"),
                ("--dir=/root/x", "/root/"),
        ):
            with self.subTest(text=text):
                found = self.found(check_words, {"docs/a.md": "\n" + text + "\n"})
                self.assertEqual(len(found), 1)
                self.assertTrue(found[0].startswith(f"docs/a.md:2: '{word}': "), found)

    def test_leaves_others_alone(self):
        self.assert_clean(check_words, {
            "a.cc": "routes, placement, mastodon, hosts/home/x, ~/work/x, XXXL, https://a/work"})


if __name__ == "__main__":
    unittest.main()
