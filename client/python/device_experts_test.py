#!/usr/bin/python3
"""Weights and gradients of perigee.DeviceBuffer, without a GPU: where they are, and in which order arrays
of the caller's are copied."""

import unittest

import numpy

from fake_device import Array, B, DeviceTest, E, H, R
from perigee._device import source_of


class DeviceExpertsTest(DeviceTest):

    def test_gradients_are_the_devices_and_reduced_behind_the_stream(self):
        _, _, _, plan = self.buffer.dispatch(*self.inputs(), stream=1)
        self.take_log()
        home, slots = self.buffer.gradients(2)
        for arrays, count in ((home, E // R), (slots, B)):
            self.assertEqual([array.shape for array in arrays],
                             [(count, H, 3), (count, H, 3), (count, 3, H)])
            for array in arrays:
                self.assertEqual((array.dtype, set(self.values(array))), ("float32", {count}))
        self.buffer.reduce_grad(plan, layer=2, stream=4)
        self.assertEqual(self.take_log(), ["gradients of 2", "follow 4", "reduce_gradients",
                                           "4 waits for 0", "4 waits for the mark", "4 waits for 1"])

    def test_weights_in_slots_are_the_devices(self):
        parts, scales = self.buffer.slot_weights()
        self.assertIsNone(scales)
        for part, array in zip(parts, self.attachment.packed, strict=True):
            self.assertEqual((part.address, part.shape, part.dtype),
                             (array.ctypes.data, array.shape, "uint8"))

    def test_arrays_of_the_callers_are_filled_behind_a_prefetch(self):
        _, _, _, plan = self.buffer.dispatch(*self.inputs(), stream=1)
        own = [Array(numpy.zeros((E + B,) + shape, numpy.uint8)) for shape in ((H, 2), (H, 2), (4, H))]
        event = self.buffer.prefetch_weight(plan, *own, async_finish=True, stream=4)
        self.assertEqual(self.take_log()[-2:], ["follow 4", "prefetch_weights"])
        event.wait(stream=4)
        self.assertEqual(self.take_log()[-5:], ["4 waits for 1"] + ["caller's to caller's on 4"] * 3
                         + ["mark on 4"])
        for array in own:
            self.assertEqual(array.values[:E].max(), 0)
            self.assertEqual(set(array.values[E:].flat), {3})
        self.take_log()
        with self.assertRaisesRegex(ValueError, r"full_up_weight is uint8 \[9, 4, 8\], expected uint8 "
                                                r"\[9, 8, 2\] or \[5, 8, 2\]"):
            self.buffer.prefetch_weight(plan, own[0], own[2], own[2], stream=4)
        self.assertEqual(self.take_log(), [])

    def test_a_part_of_an_array_is_where_its_rows_are(self):
        array = Array(numpy.arange(24, dtype=numpy.float32).reshape(4, 3, 2))
        whole = source_of(array, "array", 0)
        for first, count in ((0, 4), (1, 2), (3, 1)):
            part = self.buffer._part(whole, first, count)
            self.assertEqual(part.shape, (count, 3, 2))
            self.assertEqual(self.values(part), list(array.values[first:first + count].flat))
        one = self.buffer._one_of(whole, 2)
        self.assertEqual((one.shape, self.values(one)), ((3, 2), list(array.values[2].flat)))

    def test_gradients_of_the_callers_are_copied_there_and_back(self):
        _, _, _, plan = self.buffer.dispatch(*self.inputs(), stream=1)
        full, reduce = ([Array(numpy.full(count + shape, value, numpy.float32))
                         for shape in ((H, 3), (H, 3), (3, H))]
                        for count, value in (((E,), 20), ((R, B), 30)))
        names = ("gate_reduce_buffer", "up_reduce_buffer", "down_reduce_buffer")
        self.take_log()
        event = self.buffer.reduce_grad(plan, *full, **dict(zip(names, reduce)), async_finish=True,
                                        stream=4)
        copies = ["caller's to caller's on 4"] * 6
        self.assertEqual(self.take_log(), ["gradients of 0"] + copies + ["follow 4", "reduce_gradients"])
        for arrays, value in zip(self.attachment.sums, (20, 30)):
            for array in arrays:
                self.assertEqual(set(array.flat), {value})
                array += 1  # as the worker might
        home, slots = self.buffer.gradients()
        self.take_log()
        # The next one's are copied behind the way back of these.
        self.buffer.reduce_grad(plan, *home, **dict(zip(names, slots)), async_finish=True, stream=4)
        self.assertEqual(self.take_log()[1:], ["4 waits for 0", "4 waits for the mark", "4 waits for 1"]
                         + copies + ["mark on 4", "follow 4", "reduce_gradients"])
        for arrays, value in ((full, 21), (reduce, 31)):
            for array in arrays:
                self.assertEqual(set(array.values.flat), {value})
        event.wait(stream=4)
        self.assertEqual(self.take_log(), [])


if __name__ == "__main__":
    unittest.main()
