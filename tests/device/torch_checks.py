"""What torch_sequence.py and torch_training.py dispatch, and what must come of it, by torch's index
operations."""

import torch

S, H, K, E, B, LAYERS, INTERMEDIATE = 384, 1024, 4, 32, 3, 1, 128
VERSION = 5  # of the weights


class Inputs:
    """One rank's tokens of one round, the same in every process. A token's first three numbers say
    whose it is."""

    def __init__(self, seed, number, rank):
        generator = torch.Generator().manual_seed(hash((seed, number, rank)) % 2**62)
        count = int(torch.randint(1, S + 1, (), generator=generator))
        self.count = count
        self.hidden = torch.randn(count, H, generator=generator).to(torch.bfloat16)
        token = torch.arange(count)
        self.hidden[:, 0] = rank
        self.hidden[:, 1] = token % 128
        self.hidden[:, 2] = token // 128
        # The low experts are wanted more, so that there is something to balance.
        wanted = torch.rand(count, E, generator=generator) + torch.arange(E) / 16
        self.routes = wanted.argsort(1)[:, :K].to(torch.int32)
        self.routes[torch.rand(count, K, generator=generator) < 0.1] = -1
        self.weights = torch.rand(count, K, generator=generator)


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def all_inputs(seed, number, ranks):
    """Every rank's, with rows for S tokens each: hidden [R, S, H], routes and weights [R, S, K]."""
    hidden = torch.zeros(ranks, S, H, dtype=torch.bfloat16)
    routes = torch.full((ranks, S, K), -1, dtype=torch.int32)
    weights = torch.zeros(ranks, S, K)
    for rank in range(ranks):
        inputs = Inputs(seed, number, rank)
        hidden[rank, :inputs.count] = inputs.hidden
        routes[rank, :inputs.count] = inputs.routes
        weights[rank, :inputs.count] = inputs.weights
    return hidden.cuda(), routes.cuda(), weights.cuda()


def expert_of_rows(buffer, plan, cu_seqlens):
    """[NvS]: the expert of each row, -1 for padding and what lies behind the groups."""
    ends = cu_seqlens.long()
    experts = torch.full((buffer.NvS,), -1, dtype=torch.long, device="cuda")
    group = torch.searchsorted(ends, torch.arange(buffer.NvS, device="cuda"), right=True)
    used = group < ends.numel()
    of_group = torch.cat([torch.arange(E, device="cuda"),
                          plan.experts_to_copy[buffer.rank].long()])
    experts[used] = of_group[group[used]]
    for first, count in plan.zero_fill_ranges.tolist():
        check(torch.all(experts[first:first + count] >= -1), "padding outside of the rows")
        experts[first:first + count] = -1
    return experts


def check_rows(buffer, everything, rows, weights, plan, cu_seqlens):
    """Bit for bit: every row is the token's that it says, and that token wants the row's expert;
    every route of all ranks has its row, counted by the caller with what is returned."""
    hidden, routes, route_weights = everything
    experts = expert_of_rows(buffer, plan, cu_seqlens)
    used = int(cu_seqlens[-1])
    taken = experts >= 0
    check(int(plan.load[buffer.rank]) == int(taken.sum()), "the plan's load")
    check(not rows[:used][~taken[:used]].any(), "padding rows are not zero")
    source = rows[taken, :3].long()
    rank, token = source[:, 0], source[:, 1] + 128 * source[:, 2]
    check(torch.equal(rows[taken].view(torch.int16), hidden[rank, token].view(torch.int16)),
          "rows are not their tokens'")
    hits = routes[rank, token].long() == experts[taken][:, None]
    check(bool(torch.all(hits.sum(1) == 1)), "rows of tokens that do not want the expert")
    k = hits.long().argmax(1)
    if weights is not None:
        check(torch.equal(weights[taken], route_weights[rank, token, k]), "row weights")
        check(not weights[:used][~taken[:used]].any(), "padding weights are not zero")
    return ((rank * S + token) * K + k).cpu()


def check_tokens(mine, scale, found, weights_sk):
    """To rounding: the sum over a token's routes of its row times the expert's scale, each rounded to
    bf16, as are the sums of a rank."""
    routes = mine.routes.cuda().long()
    terms = mine.hidden.cuda().float()[:, None] * scale[routes.clamp(min=0)][..., None]
    terms = terms.to(torch.bfloat16).float() * (routes >= 0)[..., None]
    error = (found[:mine.count].float() - terms.sum(1)).abs()
    check(bool(torch.all(error <= terms.abs().sum(1) / 64 + 1e-30)),
          f"sums are off by {float(error.max())}")
    check(not found[mine.count:].any(), "tokens that are none are not zero")
    if weights_sk is not None:
        expected = torch.where(routes >= 0, mine.weights.cuda(), 0.0)
        check(torch.equal(weights_sk[:mine.count], expected), "gathered weights")


def check_norm(found, expected, bound, what):
    error = float((found.float() - expected.float()).norm() / (expected.float().norm() + 1e-30))
    check(error <= bound, f"{what} are off by {error}")


def layer_of(seed):
    generator = torch.Generator().manual_seed(seed + 1)
    return [(torch.randn(shape, generator=generator) / 32).to(torch.bfloat16)
            for shape in ((E, H, INTERMEDIATE), (E, H, INTERMEDIATE), (E, INTERMEDIATE, H))]
