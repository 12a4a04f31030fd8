#!/usr/bin/python3
"""Files and functions over the limit are found; the ratchet only goes down."""

import unittest

from planted_tree import PlantedTreeTest
from tidy_rules import cpp_functions, sizes


def function(lines, head="int F() {"):
    return head + "\n" + "  G();\n" * (lines - 2) + "}\n"


class FunctionsTest(unittest.TestCase):

    def measure(self, text):
        return [(found.name, found.first_line, found.lines)
                for found in cpp_functions.functions(text)]

    def test_finds_functions_in_scopes(self):
        text = """namespace a {
class B : public C<D(E)> {
 public:
  B() : x_{1}, y_{2} {
    x_ = 3;
  }
  int Get() const override { return x_; }
 private:
  int x_ = 0;
};
enum class E { kOne };
template <typename T>
int F(T t = {},
      int u = 3) {
  if (t) { return 1; }
  return 2;
}
}  // namespace a
"""
        self.assertEqual(self.measure(text), [("B", 4, 3), ("Get", 7, 1), ("F", 12, 6)])

    def test_is_not_misled_by_literals_and_comments(self):
        text = """// int No() {
const char* kText = "int No() {";
const char kBrace = '{';
constexpr int kMany = 1'000;
#define NO() { \\
  {
/* { */
const char* kRaw = R"(
{ int No() {
)";
constexpr int kList[] = {1, 2, 3};
void F() {
  Call([&] { return '}'; });
}
"""
        self.assertEqual(self.measure(text), [("F", 12, 3)])

    def test_names_test_cases_and_methods(self):
        text = "TEST_F(Suite, Case) {\n}\nint A::Get() {\n}\n"
        self.assertEqual(self.measure(text), [("Suite.Case", 1, 2), ("A::Get", 3, 2)])


class SizesTest(PlantedTreeTest):

    def check(self, files, ratchet=None):
        return self.found(lambda tree: sizes.check_sizes(tree, ratchet or {}), files)

    def test_function_limit(self):
        self.assertEqual(self.check({"a.cc": function(60)}), [])
        self.assertEqual(self.check({"a.cc": "\n" + function(61)}),
                         ["a.cc:2: F() has 61 lines; at most 60"])
        self.assertEqual(self.check({"a.py": "def f():\n" + "    g()\n" * 60}),
                         ["a.py:1: f() has 61 lines; at most 60"])

    def test_kernel_limit(self):
        self.assertEqual(self.check({"a.cuh": function(200, "__global__ void F() {")}), [])
        self.assertEqual(self.check({"a.cuh": function(201, "__global__ void F() {")}),
                         ["a.cuh:1: F() has 201 lines; at most 200"])

    def test_file_limit(self):
        for name in ("a.cc", "a.h", "a.py", "a.sh", "a.bzl"):
            self.assertEqual(self.check({name: "#\n" * 400}), [])
            self.assertEqual(self.check({name: "#\n" * 401}),
                             [f"{name}: the file has 401 lines; at most 400"])
        self.assertEqual(self.check({"a.json": "1\n" * 401}), [])

    def test_ratchet_allows_what_it_names_and_no_more(self):
        self.assertEqual(self.check({"a.cc": function(70)}, {"a.cc:F": 70}), [])
        self.assertEqual(self.check({"a.cc": function(71)}, {"a.cc:F": 70}),
                         ["a.cc:1: F() has 71 lines; at most 70 by the ratchet"])

    def test_ratchet_must_be_tight(self):
        where = "deploy/tools/tidy_rules/sizes.py: RATCHET: "
        self.assertEqual(self.check({"a.cc": function(65)}, {"a.cc:F": 70}),
                         [where + "a.cc:F has 70, needs 65"])
        self.assertEqual(self.check({"a.cc": function(60)}, {"a.cc:F": 70}),
                         [where + "a.cc:F has 70, needs no entry"])
        self.assertEqual(self.check({"a.cc": ""}, {"b.cc": 500}),
                         [where + "b.cc has 500, needs no entry"])


if __name__ == "__main__":
    unittest.main()
