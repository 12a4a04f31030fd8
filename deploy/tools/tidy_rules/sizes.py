"""Size limits, with a ratchet: what is over a limit is named here with its size, which may shrink
but not grow. An entry that is larger than need be, or needless, is a finding, too.
"""

import ast

from tidy_rules import cpp_functions
from tidy_rules.source_tree import Finding

FILE_LINES = 400
FUNCTION_LINES = 60
KERNEL_LINES = 200

# "path" -> lines, or "path:function" -> lines.
RATCHET = {}

_SOURCES = (".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".bzl", ".proto")


def _python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield cpp_functions.Function(node.name, node.lineno,
                                         node.end_lineno + 1 - node.lineno, False)


def _functions(path, text):
    if path.endswith(".py"):
        return list(_python_functions(text))
    if path.endswith((".h", ".cc", ".cu", ".cuh")):
        return cpp_functions.functions(text)
    return []


def _sizes(tree):
    """(ratchet key, path, line, size, limit, what) of everything that has a limit."""
    for path in tree.paths:
        if not path.endswith(_SOURCES):
            continue
        text = tree.text(path) or ""
        yield path, path, 0, len(text.splitlines()), FILE_LINES, "the file"
        for function in _functions(path, text):
            limit = KERNEL_LINES if function.is_kernel else FUNCTION_LINES
            yield (f"{path}:{function.name}", path, function.first_line, function.lines, limit,
                   f"{function.name}()")


def check_sizes(tree, ratchet=None):
    ratchet = RATCHET if ratchet is None else ratchet
    findings = []
    largest = {}  # of each ratchet entry; overloads share one
    for key, path, line, size, limit, what in _sizes(tree):
        if size > max(limit, ratchet.get(key, 0)):
            allowed = f"{ratchet[key]} by the ratchet" if key in ratchet else str(limit)
            findings.append(Finding(path, line, f"{what} has {size} lines; at most {allowed}"))
        if key in ratchet and size > limit:
            largest[key] = max(largest.get(key, 0), size)
    for key, allowed in sorted(ratchet.items()):
        needed = largest.get(key, 0)
        if needed < allowed:
            findings.append(Finding("deploy/tools/tidy_rules/sizes.py", 0,
                                    f"RATCHET: {key} has {allowed}, needs {needed or 'no entry'}"))
    return findings
