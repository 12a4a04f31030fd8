"""BUILD files: one header per library, and every source file built by some target.

A BUILD file is read by running it, as Python, with rules that write down what they are called with.
"""

import ast
import builtins
import fnmatch
import os
import re

from tidy_rules.source_tree import Finding

# "folder:target" of libraries that may have several headers, each with its reason beside it.
SEVERAL_HEADERS = set()

_LIBRARIES = ("cc_library", "cuda_library")
_NOT_OURS = ("third_party", "deploy/bazel")
_SOURCES = (".h", ".cc", ".cu", ".cuh", ".proto", "_test.py", "_test.sh")


class Glob(list):
    """What glob() returned."""

    def __add__(self, other):
        return Glob([*self, *other])

    __radd__ = __add__


def _glob_in(tree, folder):
    def glob(include, exclude=(), **_):
        inside = [os.path.relpath(path, folder or ".") for path in tree.paths
                  if path.startswith(folder + "/" if folder else "")]
        return Glob(path for path in inside
                    if any(fnmatch.fnmatchcase(path, pattern) for pattern in include)
                    and not any(fnmatch.fnmatchcase(path, pattern) for pattern in exclude))
    return glob


def _select(branches):
    return [item for branch in branches.values() for item in branch]


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings(list(value.keys()) + list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def calls(tree, path):
    """(rule, {attribute: value}) of every call in a BUILD file that names a target."""
    found = []

    def recorder(rule):
        def record(*_, **attributes):
            if "name" in attributes:
                found.append((rule, attributes))
        return record

    code = ast.parse(tree.text(path))
    names = {node.id for node in ast.walk(code)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    scope = {name: recorder(name) for name in names if not hasattr(builtins, name)}
    scope.update(glob=_glob_in(tree, os.path.dirname(path)), select=_select)
    exec(compile(code, path, "exec"), scope)  # pylint: disable=exec-used
    return found


def _check_library(path, attributes):
    headers = attributes.get("hdrs", [])
    name = attributes["name"]
    if isinstance(headers, Glob):
        return [Finding(path, 0, f"{name}: hdrs by glob: name the one header")]
    if len(headers) > 1 and f"{os.path.dirname(path)}:{name}" not in SEVERAL_HEADERS:
        return [Finding(path, 0, f"{name} has {len(headers)} headers; one per library: "
                                 + ", ".join(headers))]
    return []


def _path_of(folder, label):
    """Path from the root of the file that a string in a BUILD file may stand for."""
    match = re.match(r"^//([^:]*):(.+)$", label)
    return "/".join(match.groups()) if match else os.path.join(folder, label.removeprefix(":"))


def check_build_files(tree):
    findings = []
    named = set()  # every file that some target mentions
    for path in tree.named("BUILD"):
        if path.startswith(_NOT_OURS):
            continue
        try:
            targets = calls(tree, path)
        except Exception as error:  # pylint: disable=broad-except
            findings.append(Finding(path, 0, f"not understood: {error}"))
            continue
        for rule, attributes in targets:
            named.update(_path_of(os.path.dirname(path), string)
                         for string in _strings(list(attributes.values())))
            if rule in _LIBRARIES:
                findings += _check_library(path, attributes)
    for path in tree.paths:
        if path.endswith(_SOURCES) and path not in named and not path.startswith(_NOT_OURS):
            findings.append(Finding(path, 0, "no BUILD file names it, so nothing builds it"))
    return findings
