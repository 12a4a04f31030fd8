"""Finds the functions of a C++ file and how long they are. A rough parser: it knows braces,
parentheses and the words that open a scope, which is enough for code that clang-format has laid out.
"""

import dataclasses
import re

_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/'  # comments
    r'|R"([^()\s\\]{0,16})\(.*?\)\1"'  # raw strings
    r'|"(?:\\.|[^"\\\n])*"'  # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # characters, but not 1'000
    r'|^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*',  # preprocessor lines, continued ones included
    re.S | re.M)
_SCOPE = re.compile(r"^(template\s*<.*>\s*)?(inline\s+)?(namespace|extern|class|struct|union|enum)\b",
                    re.S)
_LABEL = re.compile(r"^\s*(public|private|protected)\s*:")


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    first_line: int  # of its signature
    lines: int  # signature to closing brace, both included
    is_kernel: bool


def blank_noise(text):
    """The text with comments, literals and preprocessor lines blanked out; positions are kept."""
    return _NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def _matching(code, start):
    """Index of the brace that closes the one at start; the end of the text if none does."""
    depth = 0
    for index in range(start, len(code)):
        if code[index] == "{":
            depth += 1
        elif code[index] == "}":
            depth -= 1
            if depth == 0:
                return index
    return len(code) - 1


def _name(header):
    before = header.split("(", 1)[0]
    words = re.findall(r"[~\w:]+|operator\s*\S+", before)
    name = words[-1] if words else "?"
    if name in ("TEST", "TEST_F", "TEST_P", "TYPED_TEST"):
        arguments = re.search(r"\(\s*(\w+)\s*,\s*(\w+)", header)
        if arguments:
            name = f"{arguments.group(1)}.{arguments.group(2)}"
    return name


def _is_initialiser(code, close):
    """Whether a brace pair outside any function ends an initialiser: a_{1}, b_{2} or x{3};"""
    rest = code[close + 1:].lstrip()
    return rest[:1] in (",", "{", ")")


def functions(text):
    """Every function with a body, lambdas and local classes counted into the one around them."""
    code = blank_noise(text)
    found = []
    start = 0  # of the declaration being read
    parens = 0
    index = 0
    while index < len(code):
        character = code[index]
        if character == "(":
            parens += 1
        elif character == ")":
            parens -= 1
        elif character == "{" and parens > 0:
            index = _matching(code, index)  # a default argument
        elif character in ";}" and parens == 0:
            start = index + 1
        elif character == "{":
            while label := _LABEL.match(code[start:index]):
                start += label.end()
            header = code[start:index]
            close = _matching(code, index)
            if _SCOPE.match(header.strip()) and "=" not in header:
                start = index + 1  # look inside
            elif "(" not in header or _is_initialiser(code, close):
                index = close  # a variable, or a member in an initialiser list
            else:
                start += len(header) - len(header.lstrip())
                first = code.count("\n", 0, start) + 1
                found.append(Function(_name(header), first,
                                      code.count("\n", 0, close) + 2 - first,
                                      "__global__" in header))
                index = close
                start = close + 1
        index += 1
    return found
