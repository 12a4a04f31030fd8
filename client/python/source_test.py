#!/usr/bin/python3
"""An owner-sharded source through perigee.Buffer, one process a rank."""

import unittest

import python_cluster
import source_steps
from rank_steps import RANKS, B, E, H, K, S


class SourceTest(python_cluster.GroupTest):

    RANKS = RANKS

    def run_ranks(self, source_storage, *steps):
        buffer = self.cluster.create_buffer(self.group, S=S, H=H, K=K, E=E, B=B, token_padding=8,
                                            source_storage=source_storage)
        python_cluster.run_ranks(source_steps.run, RANKS, self.services.address, buffer, steps)

    def test_rows_are_fetched_from_their_owners(self):
        self.run_ranks(True, ("fetch_rows",), ("refuse",), ("fetch_rows",))

    def test_without_storage_there_is_none(self):
        self.run_ranks(False, ("refuse_without_storage",))


if __name__ == "__main__":
    unittest.main()
