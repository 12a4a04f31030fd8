#!/usr/bin/python3
"""Tests of perigee.bfloat16."""

import struct
import unittest

import numpy

import perigee
from perigee.bfloat16 import bits_of


class Bfloat16Test(unittest.TestCase):

    def test_every_number_comes_back(self):
        bits = numpy.arange(2**16, dtype=numpy.uint32).astype(numpy.uint16)
        values = perigee.from_bfloat16(bits)
        finite = ~numpy.isnan(values)
        again = perigee.to_bfloat16(values)
        numpy.testing.assert_array_equal(again[finite], bits[finite])
        self.assertTrue(numpy.isnan(perigee.from_bfloat16(again[~finite])).all())

    def test_rounds_to_nearest_even(self):
        # Halfway between 1 and the next number, between that and the one after, and beside both.
        for bits, expected in ((0x3f808000, 0x3f80), (0x3f818000, 0x3f82), (0x3f808001, 0x3f81),
                               (0x3f817fff, 0x3f81), (0x7f7fffff, 0x7f80), (0x80000001, 0x8000)):
            value = struct.unpack("<f", struct.pack("<I", bits))[0]
            self.assertEqual(int(perigee.to_bfloat16([value])[0]), expected, hex(bits))

    def test_bits_are_taken_as_they_are_and_nothing_else(self):
        bits = numpy.arange(6, dtype=numpy.uint16).reshape(2, 3)
        self.assertIs(bits_of(bits, "x"), bits)
        numpy.testing.assert_array_equal(bits_of(bits.T, "x"), bits.T)
        with self.assertRaisesRegex(TypeError, "x is of float32, expected bf16 bits in uint16"):
            bits_of(bits.astype(numpy.float32), "x")


if __name__ == "__main__":
    unittest.main()
