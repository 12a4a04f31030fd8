#!/usr/bin/python3
"""Writes compile_commands.json at the workspace root, for clang-tidy and editors.

usage: compile_commands.py [BAZEL_TARGET_PATTERN]...

Asks Bazel for the compile commands of the targets (default: all) and everything they depend on.
Generates the headers that .proto files become; compiles nothing.
"""

import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Flags of GCC's that clang does not know, and the standard that Bazel names first and --cxxopt
# overrides.
DROPPED = {
    "-MD",
    "-Wno-free-nonheap-object",
    "-Wunused-but-set-parameter",
    "-fno-canonical-system-headers",
    "-std=c++0x",
}
DROPPED_WITH_VALUE = {"-MF", "-o"}


def bazel(*arguments):
    return subprocess.run(["bazel", *arguments], cwd=ROOT, check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


def clang_arguments(arguments):
    kept = []
    skip_value = False
    for argument in arguments:
        if skip_value:
            skip_value = False
        elif argument in DROPPED_WITH_VALUE:
            skip_value = True
        elif argument not in DROPPED:
            kept.append(argument)
    return kept


def entries(actions, execution_root):
    """One entry per source file; a file compiled twice (with and without -fPIC) is the same to us."""
    by_source = {}
    for action in actions:
        arguments = action["arguments"]
        source = arguments[arguments.index("-c") + 1]
        if not source.startswith(("external/", "bazel-out/")):
            by_source.setdefault(source, arguments)
    # Paths in the arguments (bazel-out/..., external/...) start at the execution root, where the
    # source folders are linked in, too.
    return [{
        "directory": ROOT,
        "file": source,
        "arguments": [
            os.path.join(execution_root, argument)
            if argument.startswith(("bazel-out/", "external/")) else argument
            for argument in clang_arguments(arguments)
        ],
    } for source, arguments in sorted(by_source.items())]


def generated_headers(pattern):
    rules = bazel("query", f'kind("_generate rule", deps({pattern}))', "--output=label").split()
    if rules:
        bazel("build", *rules)


def main(arguments):
    pattern = " + ".join(arguments or ["//..."])
    try:
        generated_headers(pattern)
        answer = bazel("aquery", "--output=jsonproto", "--include_artifacts=false",
                       f'mnemonic("CppCompile", deps({pattern}))')
        execution_root = bazel("info", "execution_root").strip()
    except subprocess.CalledProcessError as error:
        print(f"compile_commands.py: {' '.join(error.cmd[:2])} failed:\n{error.stderr}",
              file=sys.stderr)
        return 1
    found = entries(json.loads(answer).get("actions", []), execution_root)
    with open(os.path.join(ROOT, "compile_commands.json"), "w", encoding="utf-8") as out:
        json.dump(found, out, indent=1)
    print(f"compile_commands.json: {len(found)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
