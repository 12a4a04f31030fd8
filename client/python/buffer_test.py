#!/usr/bin/python3
"""perigee.Buffer on a cluster of this machine, one process a rank."""

import gc
import unittest
import warnings

import numpy

import perigee
import python_cluster
import rank_steps
import weights_steps
from python_cluster import SEED
from rank_steps import INTERMEDIATE, RANKS, B, E, H, K, S


def create_buffer(cluster, group, **options):
    return cluster.create_buffer(group, S=S, H=H, K=K, E=E, B=B, token_padding=8,
                                 intermediate=INTERMEDIATE, layers=1, **options)


def run_ranks(address, buffer, *steps):
    """The results of every rank's steps, [rank][step], each rank in a process of its own."""
    return python_cluster.run_ranks(rank_steps.run, RANKS, address, buffer, steps)


class BufferTest(python_cluster.GroupTest):

    RANKS = RANKS

    def setUp(self):
        super().setUp()
        self.buffer = create_buffer(self.cluster, self.group)

    def run_ranks(self, *steps):
        """The results of every rank's steps, [rank][step]."""
        return run_ranks(self.services.address, self.buffer, *steps)

    def check_counts(self, counts):
        """Rows of each expert on all ranks together, against the routes."""
        inputs = [rank_steps.Inputs(SEED, rank) for rank in range(RANKS)]
        expected = sum(numpy.bincount(i.routes[i.routes >= 0], minlength=E) for i in inputs)
        numpy.testing.assert_array_equal(numpy.sum(counts, axis=0), expected)

    def test_rows_go_there_and_back(self):
        results = self.run_ranks(("move_rows",), ("refuse_and_go_on",), ("refuse_arguments",))
        self.check_counts([counts for counts, _, _ in results])
        self.check_counts([counts for _, counts, _ in results])

    def test_a_layer_is_what_its_experts_say(self):
        drawn = numpy.random.default_rng(SEED)
        weights = [perigee.to_bfloat16(drawn.standard_normal(shape) / 8)
                   for shape in ((E, H, INTERMEDIATE), (E, H, INTERMEDIATE), (E, INTERMEDIATE, H))]
        with self.assertRaisesRegex(perigee.PerigeeError, "weights of E 15"):
            self.cluster.load_weights(self.buffer, 0, 3, *(w[:E - 1] for w in weights))
        self.cluster.load_weights(self.buffer, 0, 3, *weights)
        self.run_ranks(("run_layer", [perigee.from_bfloat16(w) for w in weights]),
                       ("await_the_last",))

    def tokens(self, count):
        return [self.cluster.issue_tokens(self.buffer, rank, count) for rank in range(RANKS)]

    def test_rows_are_published_directly(self):
        self.run_ranks(("publish_rows", self.tokens(1)), ("move_rows",))
        self.buffer = create_buffer(self.cluster, self.group, peer_store=True)
        self.run_ranks(("publish_rows", self.tokens(1), True), ("move_rows",))

    def test_every_refused_publication_has_its_reason(self):
        other = self.cluster.create_buffer(self.group, S=1, H=8, K=1, E=RANKS)
        good = self.tokens(3)
        tokens = []
        for rank in range(RANKS):
            flipped = lambda at: bytes(b ^ (i == at) for i, b in enumerate(good[rank][2]))
            tokens.append((good[rank], {
                "WRONG_RANK": good[(rank + 1) % RANKS][2],
                "WRONG_BUFFER": self.cluster.issue_tokens(other, rank)[0],
                "FORGED": flipped(80),
                "STALE_GENERATION": flipped(32)}))
        self.check_counts([counts for counts, in self.run_ranks(("refuse_publications", tokens))])
        with self.assertRaisesRegex(perigee.PerigeeError, "count is 0, expected 1 to 1024"):
            self.cluster.issue_tokens(self.buffer, 0, 0)

    def test_weights_of_every_format_come_to_the_slots(self):
        drawn = numpy.random.default_rng(SEED)
        matrices = ((E, H, INTERMEDIATE), (E, H, INTERMEDIATE), (E, INTERMEDIATE, H))
        some = lambda shape, dtype: drawn.integers(1, 255, shape).astype(dtype)
        for name, packed, blocks in (("bf16", 1, None), ("8bit", 1, (128, 128)), ("mxfp4", 2, None),
                                     ("mxfp4", 2, (1, 32))):
            with self.subTest(name, scales=blocks):
                dtype = numpy.uint16 if name == "bf16" else numpy.uint8
                weights = [some((*shape[:2], shape[2] // packed), dtype) for shape in matrices]
                scales = None if blocks is None else [
                    some((E, -(-shape[1] // blocks[0]), -(-shape[2] // blocks[1])),
                         numpy.float32 if name == "8bit" else numpy.uint8) for shape in matrices]
                self.buffer = self.cluster.create_buffer(
                    self.group, S=S, H=H, K=K, E=E, B=B, token_padding=8, intermediate=INTERMEDIATE,
                    layers=1, weight_format=name, weight_scales=blocks is not None)
                load = lambda *args, **options: self.cluster.load_weights(self.buffer, 0, 3, *args,
                                                                          **options)
                load(*weights, weight_format=name, scales=scales)
                used = python_cluster.run_ranks(weights_steps.run, RANKS, self.services.address,
                                                self.buffer, [("read_slots", weights, scales)])
                self.assertGreater(sum(count for count, in used), 0, "nothing was balanced")
                other = "bf16" if name != "bf16" else "8bit"
                with self.assertRaisesRegex((perigee.PerigeeError, TypeError), "format|of uint"):
                    load(*weights, weight_format=other, scales=None)
                if blocks is not None:
                    with self.assertRaisesRegex(perigee.PerigeeError, "without scales"):
                        load(*weights, weight_format=name)
                    with self.assertRaisesRegex(ValueError, "scales of down are"):
                        load(*weights, weight_format=name, scales=scales[:2] + [scales[2][:1]])
        with self.assertRaisesRegex(ValueError, "weight_format is 'fp8'"):
            self.cluster.create_buffer(self.group, S=S, H=H, K=K, E=E, weight_format="fp8")

    def test_ranks_come_and_go(self):
        self.run_ranks(("move_rows",), ("destroy",))
        self.run_ranks(("move_rows",))

    def test_who_is_attached_already_is_refused(self):
        buffer = perigee.Buffer(self.cluster, self.buffer, 0)
        with self.assertRaises(perigee.PerigeeError) as caught:
            perigee.Buffer(self.cluster, self.buffer, 0)
        self.assertEqual(caught.exception.code_name, "ALREADY_EXISTS")
        self.assertEqual((buffer.S, buffer.H, buffer.K, buffer.E, buffer.B, buffer.R),
                         (S, H, K, E, B, RANKS))
        buffer.destroy()

    def test_who_forgets_to_destroy_is_told_where_asked_for(self):
        buffer = perigee.Buffer(self.cluster, self.buffer, 0, explicitly_destroy=True)
        with self.assertWarnsRegex(ResourceWarning, "destroy.. was not called"):
            del buffer
            gc.collect()
        buffer = perigee.Buffer(self.cluster, self.buffer, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del buffer
            gc.collect()


class LossTest(unittest.TestCase):

    def test_a_lost_rank_is_named_on_all(self):
        with python_cluster.TestCluster(RANKS) as services:
            with perigee.Cluster(services.address) as cluster:
                buffer = create_buffer(cluster, cluster.create_group(RANKS))
            lost = RANKS - 1
            results = run_ranks(services.address, buffer,
                                ("lose_rank", lost, services.worker_pids[lost]))
            for rank, ((_, lost_ranks),) in enumerate(results):
                if rank != lost:
                    self.assertEqual(lost_ranks, [lost], f"rank {rank}: {results}")


if __name__ == "__main__":
    unittest.main()
