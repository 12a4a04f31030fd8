#!/usr/bin/python3
"""The API guide's forward and backward sequence through perigee.Buffer, one process a rank, with its
arguments; and the options of its constructor."""

import json
import subprocess
import unittest

import numpy

import guide_steps
import perigee
import python_cluster
import training_steps
from python_cluster import SEED
from training_steps import INTERMEDIATE, LAYERS, RANKS, VERSION, E, H, K, S
from training_test import Reference, relative_error


class GuideTest(python_cluster.GroupTest):

    RANKS = RANKS

    def create_buffer(self, **options):
        return self.cluster.create_buffer(self.group, S=S, H=H, K=K, E=E, token_padding=4,
                                          **options)

    def run_ranks(self, *steps):
        buffer = self.create_buffer(intermediate=INTERMEDIATE, layers=LAYERS, gradients=True)
        for layer, matrices in enumerate(training_steps.make_weights(SEED)):
            self.cluster.load_weights(buffer, layer, VERSION,
                                      *(perigee.to_bfloat16(matrix) for matrix in matrices))
        return python_cluster.run_ranks(guide_steps.run, RANKS, self.services.address, buffer,
                                        [(step,) for step in steps])

    def test_the_guides_sequence_is_what_its_experts_say(self):
        reference = Reference(SEED)
        results = [found for found, in self.run_ranks("guide")]
        for rank, (sums, grad, _, _) in enumerate(results):
            mine = reference.inputs[rank]
            expected = reference.layer(0, mine, mine.hidden)
            self.assertLess(relative_error(sums[:mine.count], expected), 2e-2)
            self.assertFalse(sums[mine.count:].any())
            expected, _ = reference.backward(0, mine, mine.hidden, mine.grad)
            self.assertLess(relative_error(grad[:mine.count], expected), 2e-2)
        self.assertGreater(results[0][3], 0, "no replicas")
        bases = [guide_steps.base_gradients(SEED, rank) for rank in range(RANKS)]
        for matrix in range(3):
            found = numpy.concatenate([gradients[matrix] for _, _, gradients, _ in results])
            base = numpy.concatenate([arrays[matrix] for arrays in bases])
            self.assertLess(relative_error(found, base + reference.gradients[0][matrix]), 2e-2)

    def test_arrays_may_be_laid_out_otherwise(self):
        self.run_ranks("fill_other_layouts", "reduce_other_layouts")

    def test_what_cannot_be_done_is_refused(self):
        self.assertTrue(any(used for used, in self.run_ranks("refuse")), "no replicas")

    def options_of(self, buffer):
        """As the coordinator has them."""
        text = subprocess.run(["client/cli/perigee", "get", "buffers", buffer, "--json", "--address",
                               self.services.address], check=True, capture_output=True,
                              timeout=python_cluster.STEP_SECONDS).stdout
        found = json.loads(text)
        return [found[key] for key in ("sms", "local_sms", "programmatic_launch",
                                       "high_priority_stream", "operation_timeout_ms",
                                       "warmup_timeout_ms")]

    def test_options_of_the_constructor_reach_the_buffer(self):
        self.assertEqual(self.options_of(self.create_buffer()), [0, 0, True, False, 0, 0])
        buffer = self.create_buffer(num_sms=17, num_local_sms=23, enable_pdl=False,
                                    comm_stream_priority=-1, operation_timeout=1.5,
                                    warmup_timeout=9.25)
        self.assertEqual(self.options_of(buffer), [17, 23, False, True, 1500, 9250])

    def test_options_that_cannot_be_are_refused(self):
        for kind, text, options in (
            (ValueError, "num_sms is 0, expected 1 to", {"num_sms": 0}),
            (ValueError, "num_local_sms is 2147483648", {"num_local_sms": 2**31}),
            (TypeError, "integer", {"num_sms": 1.5}),
            (ValueError, "comm_stream_priority is 1, expected 0, or less",
             {"comm_stream_priority": 1}),
            (ValueError, "operation_timeout is 0, expected 0.001 to 3600 seconds",
             {"operation_timeout": 0}),
            (ValueError, "warmup_timeout is 3601", {"warmup_timeout": 3601})):
            with self.subTest(options), self.assertRaisesRegex(kind, text):
                self.create_buffer(**options)


if __name__ == "__main__":
    unittest.main()
