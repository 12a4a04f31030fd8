"""Every element of a .proto file has a comment: above it, or on its line."""

import re

from tidy_rules.source_tree import Finding

_ELEMENTS = [
    ("message", re.compile(r"^message\s+(\w+)")),
    ("enum", re.compile(r"^enum\s+(\w+)")),
    ("service", re.compile(r"^service\s+(\w+)")),
    ("oneof", re.compile(r"^oneof\s+(\w+)")),
    ("rpc", re.compile(r"^rpc\s+(\w+)")),
    ("field", re.compile(r"^(?:optional\s+|repeated\s+|required\s+)?(?:map\s*<[^>]*>|[\w.]+)\s+"
                         r"(\w+)\s*=\s*\d+")),
    ("value", re.compile(r"^(\w+)\s*=\s*-?\d+")),
]
_STATEMENT = re.compile(r"^(syntax|package|import|option|reserved|extensions)\b")


def check_proto(path, text):
    findings = []
    commented = False  # whether the lines just above are a comment
    in_statement = False  # inside an element that goes over several lines
    for number, line in enumerate(text.splitlines(), 1):
        code, slashes, _ = line.strip().partition("//")
        code = code.strip()
        if not code:
            commented = bool(slashes)  # a blank line parts a comment from what follows
            continue
        if not in_statement and not _STATEMENT.match(code):
            for kind, pattern in _ELEMENTS:
                match = pattern.match(code)
                if match:
                    if not commented and not slashes:
                        findings.append(
                            Finding(path, number, f"{kind} {match.group(1)} has no comment"))
                    break
        in_statement = not code.endswith((";", "{", "}"))
        commented = False
    return findings


def check_protos(tree):
    return [finding for path in tree.paths if path.endswith(".proto")
            for finding in check_proto(path, tree.text(path))]
