#!/usr/bin/python3
"""Output slots through perigee.Buffer, one process a rank."""

import unittest

import numpy

import perigee
import python_cluster
import slots_steps
from python_cluster import SEED
from rank_steps import INTERMEDIATE, RANKS, B, E, H, K, S


class SlotsTest(python_cluster.GroupTest):

    RANKS = RANKS

    def create(self, **options):
        return self.cluster.create_buffer(self.group, S=S, H=H, K=K, E=E, B=B, token_padding=8,
                                          intermediate=INTERMEDIATE, layers=1, **options)

    def run_ranks(self, buffer, *steps):
        python_cluster.run_ranks(slots_steps.run, RANKS, self.services.address, buffer,
                                 [(step,) for step in steps])

    def test_several_dispatches_are_pending(self):
        buffer = self.create(dispatch_output_slots=slots_steps.SLOTS, expert_output_slots=1)
        drawn = numpy.random.default_rng(SEED)
        self.cluster.load_weights(
            buffer, 0, 3, *(perigee.to_bfloat16(drawn.standard_normal(shape) / 8)
                            for shape in ((E, H, INTERMEDIATE), (E, H, INTERMEDIATE),
                                          (E, INTERMEDIATE, H))))
        self.run_ranks(buffer, "keep_rows", "run_layers", "run_program", "refuse", "try_again", "keep_rows",
                       "hold_all")
        self.run_ranks(buffer, "hold_all")
        self.run_ranks(buffer, "run_layers")

    def test_without_slots_there_are_none(self):
        self.run_ranks(self.create(), "refuse_without_slots")


if __name__ == "__main__":
    unittest.main()
