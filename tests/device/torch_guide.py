"""The guide's arrays on a GPU: weights that a prefetch brings, and gradients that a reduction takes and
gives, in tensors of the caller's own. torch_sequence.py runs it."""

import torch

from torch_checks import E, VERSION, Inputs, check, check_norm, expert_of_rows


def gradients_of(seed, number, rank, shapes, own, slots):
    """What own experts and slots of a rank have before the reduction, [own, ..] and [slots, ..] each."""
    generator = torch.Generator().manual_seed(hash((seed, number, rank, 2)) % 2**62)
    return [[torch.randn(count, *shape, generator=generator).cuda() for shape in shapes]
            for count in (own, slots)]


def check_weights(buffer, plan, layer):
    full = [torch.cat((matrix, matrix.new_full((buffer.B, *matrix.shape[1:]), 7))).bfloat16()
            for matrix in layer]
    buffer.prefetch_weight(plan, async_finish=True, full_gate_weight=full[0], full_up_weight=full[1],
                           full_down_weight=full[2], weights_version=VERSION).wait()
    wanted = plan.experts_to_copy[buffer.rank].long()
    used = (wanted >= 0).nonzero().flatten()
    for array, matrix in zip(full, layer):
        check(torch.equal(array[:E], matrix.bfloat16()), "the experts' own weights are touched")
        check(torch.equal(array[E + used], matrix[wanted[used]].bfloat16()), "weights of slots")


def check_gradients(buffer, plan, seed, number, shapes):
    rank, own = buffer.rank, E // buffer.R
    everybody = [gradients_of(seed, number, source, shapes, own, buffer.B)
                 for source in range(buffer.R)]
    home, slots = everybody[rank]
    mine = slice(rank * own, (rank + 1) * own)
    full = []
    for base, slot in zip(home, slots):
        array = torch.full((E, *base.shape[1:]), float("nan"), device="cuda")
        array[mine] = base
        full.append(torch.cat((array, slot)))
    buffer.reduce_grad(plan, async_finish=True, full_gate_grad=full[0], full_up_grad=full[1],
                       full_down_grad=full[2], gate_reduce_buffer=full[0][E:],
                       up_reduce_buffer=full[1][E:], down_reduce_buffer=full[2][E:]).wait()
    experts = plan.experts_to_copy.tolist()
    for matrix, array in enumerate(full):
        expected = home[matrix].clone()
        for source in range(buffer.R):
            for slot, expert in enumerate(experts[source]):
                if expert // own == rank:
                    expected[expert % own] += everybody[source][1][matrix][slot]
        check_norm(array[mine], expected, 1e-5, "sums of gradients")
        check(int(array[:E].isnan().flatten(1).all(1).sum()) == E - own,
              "gradients of others are touched")
        used = plan.experts_to_copy[rank] >= 0
        check(not array[E:][used].any(), "a used slot is clear again")
    for views in buffer.gradients():
        for view in views:
            view.zero_()


def guide_round(buffer, seed, number, layer):
    """One plan, and what its two calls leave in the caller's arrays."""
    mine = Inputs(seed, number, buffer.rank)
    _, _, cu_seqlens, plan = buffer.dispatch(mine.hidden.cuda(), mine.weights.cuda(),
                                             mine.routes.cuda())
    here = expert_of_rows(buffer, plan, cu_seqlens).unique()
    own = E // buffer.R
    remote = int(((here >= 0) & (here // own != buffer.rank)).sum())
    in_slots = int((plan.experts_to_copy // own == buffer.rank).sum())
    check(plan.remote_stats.tolist() == [remote, in_slots], "remote_stats")
    check_weights(buffer, plan, layer)
    check_gradients(buffer, plan, seed, number, [matrix.shape[1:] for matrix in layer])
    buffer.synchronize()
