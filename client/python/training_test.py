#!/usr/bin/python3
"""A training step of three layers on a cluster of this machine, one process a rank, against the same
without any expert parallelism."""

import unittest

import numpy

import perigee
import python_cluster
import training_steps
from python_cluster import SEED
from training_steps import INTERMEDIATE, LAYERS, RANKS, VERSION, B, E, H, K, S, rounded


def relative_error(found, expected):
    norm = numpy.linalg.norm(expected)
    return numpy.linalg.norm(found - expected) / max(norm, 1e-30)


class Reference:
    """Every token's experts one by one, sums in fp64; rounded to bf16 where rows travel."""

    def __init__(self, seed):
        self.weights = training_steps.make_weights(seed)
        self.inputs = [training_steps.Inputs(seed, rank) for rank in range(RANKS)]
        shapes = ((E, H, INTERMEDIATE), (E, H, INTERMEDIATE), (E, INTERMEDIATE, H))
        self.gradients = [[numpy.zeros(shape) for shape in shapes] for _ in range(LAYERS)]

    def rank(self, rank):
        """Outputs of each layer, gradient of the input, gradients of route weights; adds to those of
        the experts."""
        mine = self.inputs[rank]
        hidden, outputs, kept = mine.hidden, [], []
        for layer in range(LAYERS):
            kept.append(hidden)
            hidden = rounded(self.layer(layer, mine, hidden))
            outputs.append(hidden)
        grad, grad_weights = mine.grad, [None] * LAYERS
        for layer in reversed(range(LAYERS)):
            grad, grad_weights[layer] = self.backward(layer, mine, kept[layer], grad)
            grad = rounded(grad)
        return outputs, grad, grad_weights

    def _experts(self, layer, mine):
        for token in range(mine.count):
            for k, expert in enumerate(mine.routes[layer][token]):
                if expert >= 0:
                    weights = [matrix[expert] for matrix in self.weights[layer]]
                    yield token, k, expert, weights, mine.weights[layer][token, k:k + 1]

    def layer(self, layer, mine, hidden):
        out = numpy.zeros((mine.count, H))
        for token, _, _, weights, scale in self._experts(layer, mine):
            out[token] += training_steps.expert_forward(hidden[token:token + 1], weights, scale)[0]
        return out

    def backward(self, layer, mine, hidden, grad):
        grad_in = numpy.zeros((mine.count, H))
        grad_weights = numpy.zeros((mine.count, K))
        for token, k, expert, weights, scale in self._experts(layer, mine):
            one = slice(token, token + 1)
            found = training_steps.expert_backward(hidden[one], weights, scale, grad[one])
            grad_in[token] += found[0][0]
            grad_weights[token, k] = found[1][0]
            for sums, matrix in zip(self.gradients[layer], found[2:]):
                sums[expert] += matrix
        return grad_in, grad_weights


class TrainingTest(python_cluster.GroupTest):

    RANKS = RANKS

    def create_buffer(self, **options):
        return self.cluster.create_buffer(self.group, S=S, H=H, K=K, E=E, token_padding=4,
                                          intermediate=INTERMEDIATE, layers=LAYERS, **options)

    def run_ranks(self, buffer, *steps):
        return python_cluster.run_ranks(training_steps.run, RANKS, self.services.address, buffer,
                                        steps)

    def load_weights(self, buffer):
        for layer, matrices in enumerate(training_steps.make_weights(SEED)):
            self.cluster.load_weights(buffer, layer, VERSION,
                                      *(perigee.to_bfloat16(matrix) for matrix in matrices))

    def test_a_step_is_what_its_experts_say_and_repeats_its_bits(self):
        buffer = self.create_buffer(gradients=True)
        self.load_weights(buffer)
        results = self.run_ranks(buffer, "train", "clear_gradients", "train",
                                 "refuse_what_is_dead")
        reference = Reference(SEED)
        for rank, (first, _, again, _) in enumerate(results):
            outputs, grad, grad_weights, gradients, _ = first
            self.check_bits(again[:4], first[:4])
            expected = reference.rank(rank)
            count = reference.inputs[rank].count
            for layer in range(LAYERS):
                self.assertLess(relative_error(outputs[layer][:count], expected[0][layer]), 2e-2)
                self.assertLess(relative_error(grad_weights[layer][:count], expected[2][layer]),
                                4e-2)
                self.assertFalse(outputs[layer][count:].any())
            self.assertLess(relative_error(grad[:count], expected[1]), 4e-2)
            self.assertFalse(grad[count:].any())
        self.assertGreater(sum(first[4] for first, *_ in results), 0, "no replicas")
        for layer in range(LAYERS):
            for matrix in range(3):
                found = numpy.concatenate([first[3][layer][matrix] for first, *_ in results])
                self.assertLess(relative_error(found, reference.gradients[layer][matrix]), 4e-2)

    def check_bits(self, found, expected):
        if isinstance(expected, numpy.ndarray):
            numpy.testing.assert_array_equal(found, expected)
            return
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            self.check_bits(one, other)

    def test_gradients_are_kept_where_asked_for(self):
        with self.assertRaisesRegex(perigee.PerigeeError,
                                    f"slots is {B - 1}, expected at least experts / ranks = {B}"):
            self.create_buffer(B=B - 1, gradients=True)
        buffer = perigee.Buffer(self.cluster, self.create_buffer(), 0)
        with self.assertRaisesRegex(perigee.PerigeeError, "the buffer keeps no gradients"):
            buffer.gradients()
        buffer.destroy()

    def test_reductions_want_a_slot_for_every_remote_expert(self):
        for slots in (0, B - 1):
            self.run_ranks(self.create_buffer(B=slots), "refuse_too_few_slots")


if __name__ == "__main__":
    unittest.main()
