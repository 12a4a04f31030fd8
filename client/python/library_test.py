#!/usr/bin/python3
"""Tests of what perigee._library takes over from client/lib/perigee.h, and of its errors."""

import ctypes
import pathlib
import pickle
import re
import unittest

import perigee
from perigee import _library

HEADER = "".join(pathlib.Path("client/lib", name).read_text()
                 for name in ("perigee_error.h", "perigee.h", "perigee_rings.h", "perigee_streams.h"))


class LibraryTest(unittest.TestCase):

    def fields_in_header(self, struct):
        body = re.search(r"typedef struct %s \{(.*?)\n\}" % struct, HEADER, re.S)[1]
        body = re.sub(r"//.*", "", body)
        return re.findall(r"(\w+)(?:\[\w+\])?;", body)

    def test_structs_have_the_fields_of_the_header_in_its_order(self):
        for struct, python in (("perigee_error", _library.ErrorStruct),
                               ("perigee_buffer_shape", _library.ShapeStruct),
                               ("perigee_weights", _library.WeightsStruct),
                               ("perigee_memory", _library.MemoryStruct),
                               ("perigee_gradients", _library.GradientsStruct),
                               ("perigee_slots", _library.SlotsStruct),
                               ("perigee_slot", _library.SlotStruct),
                               ("perigee_output_slot", _library.OutputSlotStruct),
                               ("perigee_source", _library.SourceStruct)):
            self.assertEqual([name for name, *_ in python._fields_], self.fields_in_header(struct))

    def test_fields_lie_where_c_has_them(self):
        # client/lib/perigee_c_test.c holds C to the same.
        self.assertEqual(_library.ErrorStruct.message.offset, 104)
        self.assertEqual(ctypes.sizeof(_library.ErrorStruct), 1128)
        self.assertEqual(_library.ShapeStruct.weight_format.offset, 40)
        self.assertEqual(_library.WeightsStruct.format.offset, 40)
        self.assertEqual(_library.WeightsStruct.down_scales.offset, 64)
        self.assertEqual(_library.WeightsStruct.gate.offset, 16)
        self.assertEqual(_library.MemoryStruct.input_tokens.offset, 64)
        self.assertEqual(_library.MemoryStruct.plan_home_load.offset, 160)
        self.assertEqual(_library.ShapeStruct.source_storage.offset, 56)
        self.assertEqual(_library.ShapeStruct.expert_output_slots.offset, 64)
        self.assertEqual(_library.ShapeStruct.high_priority_stream.offset, 88)
        self.assertEqual(ctypes.sizeof(_library.SlotStruct), 16)
        self.assertEqual(_library.OutputSlotStruct.rows.offset, 8)
        self.assertEqual(_library.SourceStruct.tokens.offset, 48)
        self.assertEqual(_library.GradientsStruct.home_gate.offset, 8)
        self.assertEqual(_library.SlotsStruct.gate.offset, 16)
        self.assertEqual(_library.GradientsStruct.slot_down.offset, 48)

    def test_every_function_of_the_header_is_known(self):
        declared = set(re.findall(r"^(?:int|void|uint32_t) (perigee_\w+)\(", HEADER, re.M))
        known = set(_library._SIGNATURES) | set(_library._ENDINGS) | {"perigee_api_version"}
        self.assertEqual(declared, known)

    def test_codes_are_the_headers(self):
        codes = re.findall(r"^  PERIGEE_(\w+) = (\d+)", HEADER, re.M)
        self.assertEqual([(name, int(code)) for name, code in codes],
                         [(name, code) for code, name in enumerate(_library.CODE_NAMES)])

    def test_an_error_says_what_it_knows_and_can_be_sent_on(self):
        with self.assertRaises(perigee.PerigeeError) as caught:
            perigee.Cluster("127.0.0.1:1")  # nobody serves there
        error = pickle.loads(pickle.dumps(caught.exception))
        self.assertIn(error.code_name, ("UNAVAILABLE", "DEADLINE_EXCEEDED"))
        self.assertIn("127.0.0.1:1", str(error))
        self.assertEqual((error.rank, error.lost_ranks, error.reason), (-1, [], ""))


if __name__ == "__main__":
    unittest.main()
