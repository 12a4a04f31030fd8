#!/usr/bin/python3
"""Elements of a .proto file without a comment are found, whatever their kind."""

import unittest

from planted_tree import PlantedTreeTest
from tidy_rules.protos import check_protos

COMMENTED = """syntax = "proto3";

package perigee.v1;

import "a.proto";

// A service.
service Things {
  // A call that goes over several lines.
  rpc GetThing(GetThingRequest)
      returns (stream Thing);
  // Another.
  rpc ListThings(ListThingsRequest) returns (ListThingsResponse) {}
}

// A message.
message Thing {
  // An enum.
  enum State {
    // A value.
    STATE_UNSPECIFIED = 0;
    READY = 1;  // On its line.
  }
  reserved 7;
  // A field.
  map<string, int32> counts = 1;
  // Another.
  repeated a.b.C cs = 2;
  // A choice.
  oneof which {
    // A field in it.
    int32 x = 3;
  }
}

// An empty one.
message Empty {}
"""


class ProtosTest(PlantedTreeTest):

    def test_commented(self):
        self.assert_clean(check_protos, {"a.proto": COMMENTED})

    def test_each_missing_comment_is_found(self):
        lines = COMMENTED.splitlines()
        comments = [index for index, line in enumerate(lines) if "//" in line]
        self.assertEqual(len(comments), 12)
        for index in comments:
            with self.subTest(comment=lines[index]):
                kept, _, _ = lines[index].partition("//")
                text = "\n".join(lines[:index] + [kept] + lines[index + 1:])
                self.assertEqual(len(self.found(check_protos, {"a.proto": text})), 1)

    def test_names_the_element(self):
        self.assertEqual(self.found(check_protos, {"a.proto": "message M {\n  int32 x = 1;\n}\n"}),
                         ["a.proto:1: message M has no comment", "a.proto:2: field x has no comment"])

    def test_a_comment_above_a_blank_line_belongs_to_nothing(self):
        self.assertEqual(self.found(check_protos, {"a.proto": "// About the file.\n\nenum E {}\n"}),
                         ["a.proto:3: enum E has no comment"])


if __name__ == "__main__":
    unittest.main()
