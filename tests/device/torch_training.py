"""A training step by the guide's whole sequence on a GPU: dispatch, prefetch, experts by torch, combine;
backward a dispatch, a reduction and a combine. Against the same by torch alone. torch_sequence.py runs
it."""

import torch

from torch_checks import (E, H, S, VERSION, Inputs, all_inputs, check, check_norm, check_rows)


def upstream_of(seed, number, rank):
    generator = torch.Generator().manual_seed(hash((seed, number, rank, 1)) % 2**62)
    return torch.randn(S, H, generator=generator).to(torch.bfloat16).cuda()


def one_expert(x, gate, up, down, scale):
    """The rows x [n, H] of one expert, each times its route weight."""
    inner = torch.nn.functional.silu(x.float() @ gate) * (x.float() @ up)
    return ((inner.to(torch.bfloat16).float() @ down) * scale[:, None]).to(torch.bfloat16)


def experts_with_gradients(buffer, plan, rows, row_weights, weights):
    """Every group of rows through its expert; weights: of own experts, and behind them of slots."""
    first_own, own = buffer.rank * (E // buffer.R), E // buffer.R
    ends, padding = plan.cu_seqlens.tolist(), plan.zero_fill_ranges[:, 1].tolist()
    pieces, start = [], 0
    for group, end in enumerate(ends):
        filled = end - padding[group]
        place = group - E + own if group >= E else group - first_own
        if filled > start:
            check(0 <= place < own + buffer.B, f"rows of group {group} on rank {buffer.rank}")
            pieces.append(one_expert(rows[start:filled], *(matrix[place] for matrix in weights),
                                     row_weights[start:filled]))
        pieces.append(torch.zeros(end - max(filled, start), H, dtype=torch.bfloat16, device="cuda"))
        start = end
    pieces.append(torch.zeros(buffer.NvS - start, H, dtype=torch.bfloat16, device="cuda"))
    return torch.cat(pieces)


def plain_step(seed, number, ranks, mine, layer):
    """The same without expert parallelism: sums of tokens, gradients of their rows and route weights of
    rank `mine`, and of the weights from all ranks' tokens."""
    weights = [matrix.clone().requires_grad_() for matrix in layer]
    for rank in range(ranks):
        inputs = Inputs(seed, number, rank)
        hidden = inputs.hidden.cuda().float().requires_grad_()
        scale = inputs.weights.cuda().requires_grad_()
        routes = inputs.routes.cuda().long()
        sums = torch.zeros(inputs.count, H, device="cuda")
        for expert in range(E):
            token, k = (routes == expert).nonzero(as_tuple=True)
            rows = one_expert(hidden[token], *(matrix[expert] for matrix in weights),
                              scale[token, k])
            sums = sums.index_add(0, token, rows.float())
        sums.backward(upstream_of(seed, number, rank)[:inputs.count].float())
        if rank == mine:
            found = sums.detach(), hidden.grad, scale.grad
    return (*found, [matrix.grad for matrix in weights])


def training_round(buffer, seed, number, layer):
    """dispatch, prefetch, experts by torch, combine; and backward: dispatch, reduction, combine."""
    import perigee.torch
    mine = Inputs(seed, number, buffer.rank)
    hidden = mine.hidden.cuda().requires_grad_()
    scale = mine.weights.cuda().requires_grad_()
    rows, row_weights, plan = perigee.torch.dispatch(buffer, hidden, mine.routes.cuda(), scale)
    routes = check_rows(buffer, all_inputs(seed, number, buffer.R), rows.detach(),
                        row_weights.detach(), plan, plan.cu_seqlens)
    buffer.prefetch_weight(plan, weights_version=VERSION, async_finish=True).wait()
    own = slice(buffer.rank * (E // buffer.R), (buffer.rank + 1) * (E // buffer.R))
    in_slots = plan.experts_to_copy[buffer.rank].long().clamp(min=0)
    home = [matrix[own].clone().requires_grad_() for matrix in layer]
    weights = perigee.torch.expert_weights(buffer, plan, home,
                                           [matrix[in_slots] for matrix in layer])
    output = experts_with_gradients(buffer, plan, rows, row_weights, weights)
    tokens, _ = perigee.torch.combine(buffer, plan, output)
    tokens.backward(upstream_of(seed, number, buffer.rank))
    sums, hidden_grad, scale_grad, weight_grads = plain_step(seed, number, buffer.R, buffer.rank,
                                                             layer)
    check_norm(tokens[:mine.count], sums, 0.02, "sums of tokens")
    check_norm(hidden.grad, hidden_grad, 0.03, "gradients of tokens")
    check_norm(scale.grad, scale_grad, 0.03, "gradients of route weights")
    for found, expected, what in zip(home, weight_grads, ("gate", "up", "down")):
        check_norm(found.grad, expected[own], 0.03, f"gradients of {what}")
    for arrays in buffer.gradients():
        check(not any(bool(array.any()) for array in arrays), "gradients are left behind")
    buffer.synchronize()
    return routes
