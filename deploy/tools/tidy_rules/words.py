"""Words that do not belong into the sources: two names for one thing, unfinished work, places on
one machine.
"""

import re

from tidy_rules.source_tree import Finding

# This file and its test name what they forbid.
_EXEMPT = ("deploy/tools/tidy_rules/words.py", "tests/tidy/words_test.py", "LICENSE")

BANNED = [
    (re.compile(r"\brouting[ _-]?table", re.I), "say placement or routes"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "finish it or leave it out"),
    (re.compile(r"(?<![\w.~])/(work|root|home|farm|Users)/"), "a place on one machine"),
]


def check_words(tree):
    findings = []
    for path in tree.paths:
        text = tree.text(path)
        if path in _EXEMPT or text is None:
            continue
        for pattern, advice in BANNED:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                findings.append(Finding(path, line, f"'{match.group(0)}': {advice}"))
    return findings
