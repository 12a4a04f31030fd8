#!/usr/bin/python3
"""perigee.torch on host buffers: values and gradients against indices. Skipped where torch is missing;
where it is not, tests/device/torch_sequence.py has the same on a GPU."""

import multiprocessing
import os
import random
import unittest

try:
    import torch
except ImportError:
    torch = None

import perigee
import python_cluster
import rank_steps

SEED = int(os.environ.get("PERIGEE_SEED", random.randrange(2**31)))


def _work(address, name, rank):
    """Twice each row comes back: gradients and values are the routes of a token times two."""
    import perigee.torch
    mine = rank_steps.Inputs(SEED, rank)
    with perigee.Cluster(address) as cluster:
        buffer = perigee.Buffer(cluster, name, rank)
    with buffer:
        hidden = torch.tensor(mine.values).to(torch.bfloat16).requires_grad_()
        weights = torch.tensor(mine.weights).requires_grad_()
        rows, row_weights, plan = perigee.torch.dispatch(buffer, hidden,
                                                         torch.tensor(mine.routes), weights)
        tokens, gathered = perigee.torch.combine(buffer, plan, rows * 2, row_weights)
        routes = torch.tensor(mine.routes_of_token)[:, None]
        assert torch.equal(tokens[:mine.count].float(), 2 * routes * hidden.float())
        (tokens.float().sum() + 3 * gathered.sum()).backward()
        assert torch.equal(hidden.grad.float(), (2 * routes).expand(-1, buffer.H).float())
        assert torch.equal(weights.grad, 3.0 * (torch.tensor(mine.routes) >= 0))
        # Weights that scale rows, and do not come back themselves: combine has no gradient of them.
        hidden.grad = weights.grad = None
        rows, row_weights, plan = perigee.torch.dispatch(buffer, hidden,
                                                         torch.tensor(mine.routes), weights)
        rows = torch.where(row_weights[:, None] > 0, rows, 0).float()  # what is behind is anything
        tokens, none = perigee.torch.combine(buffer, plan,
                                             (rows * row_weights[:, None]).to(torch.bfloat16))
        assert none is None
        tokens.float().sum().backward()
        taken = (torch.tensor(mine.routes) >= 0) & (weights > 0)
        sums = hidden.detach().float().sum(1)[:, None] * taken
        assert torch.allclose(weights.grad, sums, rtol=1e-5), (weights.grad - sums).abs().max()
        expected = (weights.detach() * taken).sum(1)[:, None].expand(-1, buffer.H)
        assert torch.allclose(hidden.grad.float(), expected, rtol=0.03)


@unittest.skipIf(torch is None, "torch is not installed")
class TorchTest(unittest.TestCase):

    def test_gradients_are_those_of_indices(self):
        ranks = rank_steps.RANKS
        with python_cluster.TestCluster(ranks) as services:
            with perigee.Cluster(services.address) as cluster:
                name = cluster.create_buffer(cluster.create_group(ranks), S=rank_steps.S,
                                             H=rank_steps.H, K=rank_steps.K, E=rank_steps.E,
                                             B=rank_steps.B, token_padding=8)
            with multiprocessing.get_context("spawn").Pool(ranks) as pool:
                pool.starmap_async(_work, [(services.address, name, rank) for rank in range(ranks)],
                                   chunksize=1).get(python_cluster.STEP_SECONDS)


if __name__ == "__main__":
    if torch is None:
        print("SKIPPED: torch is not installed", flush=True)
    print(f"PERIGEE_SEED={SEED}", flush=True)
    unittest.main()
