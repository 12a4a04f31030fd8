#!/usr/bin/python3
"""An owner-sharded source through perigee.Buffer, one process a rank. The seed is printed;
PERIGEE_SEED=n runs that one again."""

import multiprocessing
import os
import random
import unittest

import perigee
import python_cluster
import source_steps
from rank_steps import RANKS, B, E, H, K, S

SEED = int(os.environ.get("PERIGEE_SEED", random.randrange(2**31)))


class SourceTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        print(f"PERIGEE_SEED={SEED}", flush=True)
        cls.services = python_cluster.TestCluster(RANKS)
        cls.addClassCleanup(cls.services.stop)
        cls.cluster = perigee.Cluster(cls.services.address)
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        self.group = self.cluster.create_group(RANKS)
        self.addCleanup(self.cluster.delete_group, self.group)

    def run_ranks(self, source_storage, *steps):
        buffer = self.cluster.create_buffer(self.group, S=S, H=H, K=K, E=E, B=B, token_padding=8,
                                            source_storage=source_storage)
        context = multiprocessing.get_context("spawn")
        with context.Pool(RANKS) as pool:
            pool.starmap_async(
                source_steps.run,
                [(self.services.address, buffer, rank, SEED, steps) for rank in range(RANKS)],
                chunksize=1).get(python_cluster.STEP_SECONDS)

    def test_rows_are_fetched_from_their_owners(self):
        self.run_ranks(True, ("fetch_rows",), ("refuse",), ("fetch_rows",))

    def test_without_storage_there_is_none(self):
        self.run_ranks(False, ("refuse_without_storage",))


if __name__ == "__main__":
    unittest.main()
