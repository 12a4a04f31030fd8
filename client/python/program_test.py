#!/usr/bin/python3
"""Operations of perigee.Buffer that are handed over together, one thread a rank."""

import concurrent.futures
import unittest

import numpy

import perigee
import python_cluster
from python_cluster import SEED
from rank_steps import INTERMEDIATE, RANKS, B, E, H, Inputs, K, S

VERSION = 3


class ProgramTest(python_cluster.ClusterTest):

    RANKS = RANKS

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        group = cls.cluster.create_group(RANKS)
        cls.addClassCleanup(cls.cluster.delete_group, group)
        name = cls.cluster.create_buffer(group, S=S, H=H, K=K, E=E, B=B, token_padding=8,
                                         intermediate=INTERMEDIATE, layers=1)
        drawn = numpy.random.default_rng(SEED)
        cls.cluster.load_weights(name, 0, VERSION, *(
            perigee.to_bfloat16(drawn.standard_normal(shape) / 8)
            for shape in ((E, H, INTERMEDIATE), (E, H, INTERMEDIATE), (E, INTERMEDIATE, H))))
        cls.buffers = [perigee.Buffer(cls.cluster, name, rank) for rank in range(RANKS)]
        for buffer in cls.buffers:
            cls.addClassCleanup(buffer.destroy)
        cls.inputs = [Inputs(SEED, rank) for rank in range(RANKS)]

    def on_every_rank(self, step):
        """The results of step(buffer, inputs), [rank]."""
        with concurrent.futures.ThreadPoolExecutor(RANKS) as pool:
            return list(pool.map(step, self.buffers, self.inputs))

    def layer(self, buffer, mine, **options):
        """(dispatch's results, combine's results)."""
        dispatched = buffer.dispatch(mine.hidden, mine.weights, mine.routes, zero_copy=True,
                                     router_weights_zero_copy=True, **options)
        plan = dispatched[3]
        buffer.prefetch_weight(plan, weights_version=VERSION, **options)
        buffer.run_experts(plan, weights_version=VERSION, **options)
        return dispatched, buffer.combine(
            plan, buffer.hidden_nvsh_buffer_view, buffer.router_weight_buffer_view, zero_copy=True,
            router_weights_zero_copy=True, **options)

    def test_a_layer_is_that_of_single_calls(self):
        def single(buffer, mine):
            return [array.copy() for array in self.layer(buffer, mine)[1][:2]]

        def together(buffer, mine):
            before = buffer.barrier(async_finish=True)
            with buffer.program():
                dispatched, (hidden_sh, weights_sk, event) = self.layer(buffer, mine,
                                                                        async_finish=True)
                self.assertFalse(event.done())
            event.wait()
            self.assertTrue(before.done() and dispatched[-1].done())
            self.assertEqual(dispatched[3].load.sum(),
                             sum((i.routes >= 0).sum() for i in self.inputs))
            return hidden_sh, weights_sk

        for expected, found in zip(self.on_every_rank(single), self.on_every_rank(together)):
            self.assertGreater(numpy.count_nonzero(expected[0]), 0)
            numpy.testing.assert_array_equal(found[0], expected[0])
            numpy.testing.assert_array_equal(found[1], expected[1])

    def test_where_the_block_fails_nothing_is_handed_over(self):
        def step(buffer, mine):
            dropped = []
            # Of one rank alone: the others would hear of anything that it had handed over.
            if buffer.rank == 1:
                with self.assertRaisesRegex(KeyError, "caller's own"):
                    with buffer.program():
                        dropped += self.layer(buffer, mine, async_finish=True)
                        raise KeyError("caller's own")
                for event in dropped[0][-1], dropped[1][-1]:
                    with self.assertRaisesRegex(perigee.PerigeeError, "was not handed over"):
                        event.wait()
            return self.layer(buffer, mine)[1][0].copy()

        first = self.on_every_rank(step)
        for expected, found in zip(first, self.on_every_rank(step)):
            numpy.testing.assert_array_equal(found, expected)

    def test_a_publication_in_a_dropped_program_is_still_to_be_published(self):
        def step(buffer, mine):
            prepared = buffer.prepare_publication(buffer.prepare_dispatch(mine.routes), mine.weights)
            buffer.store_rows(prepared.target, mine.hidden)
            with self.assertRaisesRegex(KeyError, "caller's own"):
                with buffer.program():
                    buffer.publish(prepared, zero_copy=True, async_finish=True)
                    self.assertTrue(prepared.used)
                    raise KeyError("caller's own")
            self.assertFalse(prepared.used)
            return buffer.publish(prepared)[0]

        self.on_every_rank(step)

    def test_what_would_wait_within_is_refused(self):
        buffer, mine = self.buffers[0], self.inputs[0]
        plan = self.on_every_rank(lambda buffer, mine: self.layer(buffer, mine)[0][3])[0]
        for call, text in (
            (lambda: buffer.barrier(), "async_finish=True"),
            (lambda: buffer.barrier(async_finish=True).wait(), "before the program is handed over"),
            (lambda: [buffer.dispatch(mine.hidden, None, mine.routes, async_finish=True)
                      for _ in range(2)], "before the program is handed over"),
            (lambda: plan.clone(), "before or behind"),
            (lambda: [buffer.barrier(async_finish=True) for _ in range(49)], "48 operations")):
            with self.assertRaisesRegex(ValueError, text):
                with buffer.program():
                    call()
        # Caught within, too: the other ranks know of no barrier.
        with self.assertRaisesRegex(ValueError, "was refused: none of it"):
            with buffer.program():
                with self.assertRaises(ValueError):
                    buffer.barrier()
        with self.assertRaisesRegex(ValueError, "has begun already"):
            with buffer.program():
                with buffer.program():
                    pass
        with buffer.program():
            pass
        self.on_every_rank(lambda buffer, mine: buffer.barrier())


if __name__ == "__main__":
    unittest.main()
