#!/usr/bin/python3
"""Checks the habits of this source tree that no compiler checks; docs/development.md says them.

usage: tidy.py [ROOT]

Include arrows, sizes, BUILD files, comments in .proto files, words, scripts, include guards. Prints
one line per finding; exit status 0: there is none.
"""

import os
import sys

from tidy_rules import arrows, build_files, guards, protos, scripts, sizes, words
from tidy_rules.source_tree import SourceTree

CHECKS = [
    arrows.check_arrows,
    arrows.check_purity,
    arrows.check_policies_exist,
    sizes.check_sizes,
    build_files.check_build_files,
    protos.check_protos,
    words.check_words,
    scripts.check_scripts,
    guards.check_guards,
]


def findings(root):
    tree = SourceTree(root)
    return sorted(finding for check in CHECKS for finding in check(tree))


def main(arguments):
    here = os.path.dirname(os.path.realpath(__file__))
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(here))
    if len(arguments) > 1 or not os.path.isfile(os.path.join(root, "WORKSPACE")):
        print(__doc__, file=sys.stderr)
        return 2
    found = findings(root)
    for finding in found:
        print(finding)
    print(f"tidy: {len(found)} findings in {len(SourceTree(root).paths)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
