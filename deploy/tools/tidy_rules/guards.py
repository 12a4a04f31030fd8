"""Include guards: PERIGEE_<PATH>_, by the path from the root."""

import re

from tidy_rules.source_tree import Finding


def guard_of(path):
    return "PERIGEE_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"


def check_guards(tree):
    findings = []
    for path in tree.paths:
        if not path.endswith((".h", ".cuh")):
            continue
        text = tree.text(path)
        guard = guard_of(path)
        opening = re.search(r"^#ifndef (\w+)\n#define (\w+)$", text, re.M)
        if not opening or set(opening.groups()) != {guard} or \
                not text.rstrip().endswith(f"#endif  // {guard}"):
            findings.append(Finding(path, 0, f"no include guard {guard}"))
    return findings
