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

INTERMEDIATE = 8
SEED = int(os.environ.get("PERIGEE_SEED", random.randrange(2**31)))


def _train(address, name, rank, seed):
    """An expert is a factor of its rows: its gradient is the dot of what comes in and what goes out."""
    import perigee.torch
    mine = rank_steps.Inputs(seed, rank)
    own = rank_steps.E // rank_steps.RANKS
    shapes = ((rank_steps.H, INTERMEDIATE), (rank_steps.H, INTERMEDIATE),
              (INTERMEDIATE, rank_steps.H))
    with perigee.Cluster(address) as cluster:
        buffer = perigee.Buffer(cluster, name, rank)
    with buffer:
        hidden = torch.tensor(mine.values).to(torch.bfloat16).requires_grad_()
        rows, _, plan = perigee.torch.dispatch(buffer, hidden, torch.tensor(mine.routes))
        home = [torch.ones((own,) + shape, requires_grad=True) for shape in shapes]
        weights = perigee.torch.expert_weights(
            buffer, plan, home, [torch.ones((buffer.B,) + shape) for shape in shapes])
        pieces, start = [], 0
        for group, end in enumerate(plan.cu_seqlens):
            filled = int(end - plan.zero_fill_ranges[group, 1])
            place = group - buffer.E + own if group >= buffer.E else group - rank * own
            if filled > start:
                factor = sum(matrix[place, 0, 0] for matrix in weights) / 3
                pieces.append((rows[start:filled].float() * factor).to(torch.bfloat16))
            pieces.append(torch.zeros(int(end) - max(filled, start), buffer.H,
                                      dtype=torch.bfloat16))
            start = int(end)
        pieces.append(torch.zeros(buffer.NvS - start, buffer.H, dtype=torch.bfloat16))
        tokens, _ = perigee.torch.combine(buffer, plan, torch.cat(pieces))
        tokens.float().sum().backward()
        expected = torch.zeros(buffer.E)
        for source in range(buffer.R):
            inputs = rank_steps.Inputs(seed, source)
            sums = torch.tensor(inputs.values).to(torch.bfloat16).float().sum(1)
            for routes, token_sum in zip(torch.tensor(inputs.routes).long(), sums):
                expected[routes[routes >= 0]] += token_sum / 3
        for matrix in home:
            found = matrix.grad[:, 0, 0]
            assert torch.allclose(found, expected[rank * own:][:own], rtol=1e-2, atol=1e-2), found
            matrix.grad[:, 0, 0] = 0
            assert not matrix.grad.any()
        assert not any(sums.any() for sums in sum(buffer.gradients(), ()))


def _work(address, name, rank, seed):
    """Twice each row comes back: gradients and values are the routes of a token times two."""
    import perigee.torch
    mine = rank_steps.Inputs(seed, rank)
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
        # A gradient of a gradient would be wrong, and is none.
        rows, _, plan = perigee.torch.dispatch(buffer, hidden, torch.tensor(mine.routes))
        tokens, _ = perigee.torch.combine(buffer, plan, rows)
        grad, = torch.autograd.grad((tokens.float() ** 2).sum(), hidden, create_graph=True)
        try:
            grad.float().sum().backward()
            raise AssertionError("a gradient of a gradient")
        except RuntimeError as error:
            assert "once_differentiable" in str(error), error
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


def _refuse(address, name, rank, seed):
    """B < E/R: what would be differentiated is refused, and no rank waits; without gradients it is taken."""
    import perigee.torch
    mine = rank_steps.Inputs(seed, rank)
    with perigee.Cluster(address) as cluster:
        buffer = perigee.Buffer(cluster, name, rank)
    with buffer:
        hidden = torch.tensor(mine.values).to(torch.bfloat16).requires_grad_()
        routes = torch.tensor(mine.routes)
        with torch.no_grad():
            rows, _, plan = perigee.torch.dispatch(buffer, hidden, routes)
        leaf = rows.clone().requires_grad_()
        weights = [torch.ones(1, requires_grad=True)] * 3
        for refused in (lambda: perigee.torch.dispatch(buffer, hidden, routes),
                        lambda: perigee.torch.combine(buffer, plan, leaf),
                        lambda: perigee.torch.expert_weights(buffer, plan, weights, weights)):
            try:
                refused()
                raise AssertionError("fewer slots than E/R were taken")
            except ValueError as error:
                own = rank_steps.E // rank_steps.RANKS
                assert f"B is {buffer.B}, expected at least E/R = {own}" in str(error), error
        tokens, _ = perigee.torch.combine(buffer, plan, rows)
        routes = torch.tensor(mine.routes_of_token)[:, None]
        assert torch.equal(tokens[:mine.count].float(), routes * hidden.detach().float())


@unittest.skipIf(torch is None, "torch is not installed")
class TorchTest(unittest.TestCase):

    def test_gradients_are_those_of_indices(self):
        self.run_ranks(_work)

    def test_gradients_want_a_slot_for_every_remote_expert(self):
        self.run_ranks(_refuse, B=rank_steps.B)

    def test_gradients_of_experts_come_home(self):
        self.run_ranks(_train, intermediate=INTERMEDIATE, layers=1, gradients=True)

    def run_ranks(self, work, **options):
        ranks = rank_steps.RANKS
        with python_cluster.TestCluster(ranks) as services:
            with perigee.Cluster(services.address) as cluster:
                name = cluster.create_buffer(cluster.create_group(ranks), S=rank_steps.S,
                                             H=rank_steps.H, K=rank_steps.K, E=rank_steps.E,
                                             token_padding=8, **options)
            with multiprocessing.get_context("spawn").Pool(ranks) as pool:
                pool.starmap_async(work, [(services.address, name, rank, SEED) for rank in range(ranks)],
                                   chunksize=1).get(python_cluster.STEP_SECONDS)


if __name__ == "__main__":
    if torch is None:
        print("SKIPPED: torch is not installed", flush=True)
    print(f"PERIGEE_SEED={SEED}", flush=True)
    unittest.main()
