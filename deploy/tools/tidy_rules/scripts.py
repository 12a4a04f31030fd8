"""Scripts: run bits where there is a first line that names an interpreter, bash in strict mode."""

import re

from tidy_rules.source_tree import Finding

_BASH = re.compile(r"^#!\S*(/|\benv )bash\b")
_STRICT = re.compile(r"^set -euo pipefail$", re.M)


def check_scripts(tree):
    findings = []
    for path in tree.paths:
        text = tree.text(path)
        if text is None:
            continue
        is_script = text.startswith("#!")
        if is_script and not tree.is_executable(path):
            findings.append(Finding(path, 0, "a script without its run bit"))
        if not is_script and tree.is_executable(path):
            findings.append(Finding(path, 0, "has a run bit, but no #! line"))
        if path.endswith(".sh") and not is_script:
            findings.append(Finding(path, 1, "has no #! line"))
        if _BASH.match(text) and not _STRICT.search(text):
            findings.append(Finding(path, 0, "bash without 'set -euo pipefail'"))
    return findings
