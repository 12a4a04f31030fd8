#!/usr/bin/python3
"""What goes between packages of a GPU's memory, without a GPU: addresses are never looked at."""

import ctypes
import gc
import unittest

from perigee import _device
from perigee._device import DeviceArray, source_of, stream_of


class DeviceArrayTest(unittest.TestCase):

    def setUp(self):
        self.owner = type("Owner", (), {})()
        self.array = DeviceArray(0x7000, (3, 8), "bfloat16", 1, self.owner)

    def test_the_interface_has_bfloat16_by_its_bits(self):
        interface = self.array.__cuda_array_interface__
        self.assertEqual(interface, {"shape": (3, 8), "typestr": "<u2", "strides": None,
                                     "data": (0x7000, False), "version": 3})
        self.assertEqual(self.array.nbytes, 48)

    def test_dlpack_says_what_it_is(self):
        self.assertEqual(self.array.__dlpack_device__(), (2, 1))

        class OnlyDlpack:
            __dlpack__, __dlpack_device__ = self.array.__dlpack__, self.array.__dlpack_device__

        for dtype in ("bfloat16", "float32", "int32"):
            self.array.dtype = dtype
            source = source_of(OnlyDlpack(), "it", 1)
            self.assertEqual(source[:4], (0x7000, (3, 8), dtype, 1))
        with self.assertRaises(BufferError):
            self.array.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            self.array.__dlpack__(dl_device=(2, 0))

    def test_a_capsule_keeps_the_memory_until_it_or_its_consumer_lets_go(self):
        capsule = self.array.__dlpack__(stream=1, max_version=(1, 0))
        self.assertEqual(len(_device._lent), 1)
        del capsule
        gc.collect()
        self.assertEqual(len(_device._lent), 0)
        # A consumer renames the capsule, and calls the deleter when it is done.
        capsule = self.array.__dlpack__()
        (address, kept), = _device._lent.items()
        rename = ctypes.pythonapi.PyCapsule_SetName
        rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
        used = b"used_dltensor"
        rename(capsule, used)
        del capsule
        gc.collect()
        self.assertEqual(len(_device._lent), 1)
        kept[0].deleter(address)
        self.assertEqual(len(_device._lent), 0)

    def test_what_cannot_be_taken_is_named(self):
        class Interface:
            def __init__(self, **changes):
                self.__cuda_array_interface__ = dict(
                    {"shape": (2, 4), "typestr": "<f4", "data": (64, True), "version": 3}, **changes)

        self.assertEqual(source_of(Interface(strides=(16, 4)), "it", 0)[:3],
                         (64, (2, 4), "float32"))
        for kind, text, array in ((ValueError, "weights is not contiguous",
                                   Interface(strides=(4, 8))),
                                  (TypeError, "weights is a list, with neither", [1]),
                                  (ValueError, "weights is on device 1, the buffer on device 0",
                                   self.array)):
            with self.assertRaisesRegex(kind, text):
                source_of(array, "weights", 0)

    def test_streams_are_numbers_or_say_theirs(self):
        self.assertEqual(stream_of(None, 0), 0)
        self.assertEqual(stream_of(77, 0), 77)
        for name in ("cuda_stream", "ptr"):
            self.assertEqual(stream_of(type("Stream", (), {name: 5})(), 0), 5)


if __name__ == "__main__":
    unittest.main()
