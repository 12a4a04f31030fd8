"""Dispatch and combine as torch operations with gradients, and expert weights whose gradients come home,
for buffers on the host (CPU tensors) and on a GPU. Imports torch; `import perigee` alone does not.

Combine's gradient is dispatched by the plan, dispatch's is combined by it, and those of weights are
reduced: so backward passes run these operations on all ranks, in the same order. Gradients of gradients
are refused: what backward does has none. So is, with a ValueError before anything moves, what would be
differentiated in a buffer with fewer slots than E/R (Buffer.check_backward); under torch.no_grad() it is
taken."""

import numpy
import torch
from torch.autograd.function import once_differentiable

from perigee.device_buffer import DeviceBuffer


def _to_buffer(buffer, tensor):
    """A tensor as the buffer takes it."""
    if tensor is None:
        return None
    tensor = tensor.detach().contiguous()
    if isinstance(buffer, DeviceBuffer):
        return tensor
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(numpy.uint16)
    return tensor.numpy()


def _to_torch(array):
    if array is None or isinstance(array, torch.Tensor):
        return array
    if array.dtype == numpy.uint16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _check_backward(buffer, *tensors):
    """Forward: when backward comes, other operations have moved."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad
                                       for tensor in tensors):
        buffer.check_backward()


def _dispatch(buffer, hidden, weights, topk_experts, plan):
    rows, row_weights, _, plan = buffer.dispatch(
        _to_buffer(buffer, hidden), _to_buffer(buffer, weights), _to_buffer(buffer, topk_experts),
        plan=plan)
    return _to_torch(rows), _to_torch(row_weights), plan


def _combine(buffer, plan, rows, weights):
    hidden, gathered, _ = buffer.combine(plan, _to_buffer(buffer, rows),
                                         _to_buffer(buffer, weights))
    return _to_torch(hidden), _to_torch(gathered)


class _Dispatch(torch.autograd.Function):

    @staticmethod
    def forward(ctx, hidden, weights, buffer, topk_experts, made):
        rows, row_weights, plan = _dispatch(buffer, hidden, weights, topk_experts, None)
        made.append(plan)
        ctx.buffer, ctx.plan, ctx.weighted = buffer, plan, weights is not None
        if row_weights is None:
            return rows
        return rows, row_weights

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_rows, grad_weights=None):
        hidden, weights = _combine(ctx.buffer, ctx.plan, grad_rows,
                                   grad_weights if ctx.weighted else None)
        count = ctx.plan.tokens
        return hidden[:count], None if weights is None else weights[:count], None, None, None


class _Combine(torch.autograd.Function):

    @staticmethod
    def forward(ctx, rows, weights, buffer, plan):
        hidden, gathered = _combine(buffer, plan, rows, weights)
        ctx.buffer, ctx.plan = buffer, plan
        if gathered is None:
            return hidden
        return hidden, gathered

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_hidden, grad_weights=None):
        count = ctx.plan.tokens
        weights = None if grad_weights is None else grad_weights[:count]
        rows, row_weights, _ = _dispatch(ctx.buffer, grad_hidden[:count], weights, None, ctx.plan)
        return rows, row_weights, None, None


class _ExpertWeights(torch.autograd.Function):

    @staticmethod
    def forward(ctx, buffer, plan, layer, *home_and_slots):
        home, slots = home_and_slots[:3], home_and_slots[3:]
        ctx.buffer, ctx.plan, ctx.layer = buffer, plan, layer
        ctx.dtypes = [weights.dtype for weights in home]
        return tuple(torch.cat((own, slot.to(own.dtype))) for own, slot in zip(home, slots))

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        home, slots = ([_to_torch(sums) for sums in arrays]
                       for arrays in ctx.buffer.gradients(ctx.layer))
        for grad, own, slot in zip(grads, home, slots):
            own.copy_(grad[:own.shape[0]])
            slot.copy_(grad[own.shape[0]:])  # what a reduction that failed has left is not added to
        ctx.buffer.reduce_grad(ctx.plan, layer=ctx.layer)
        sums = [own.to(dtype, copy=True) for own, dtype in zip(home, ctx.dtypes)]
        for own in home:
            own.zero_()
        return (None, None, None, *sums, None, None, None)


def dispatch(buffer, hidden, topk_experts, route_weights=None):
    """Buffer.dispatch with gradients: rows [NvS, H], route weights [NvS] or None, and the plan, whose
    cu_seqlens say where each expert's rows end. hidden [n, H] bf16, topk_experts [n, K] int32,
    route_weights [n, K] float32."""
    _check_backward(buffer, hidden, route_weights)
    made = []
    results = _Dispatch.apply(hidden, route_weights, buffer, topk_experts, made)
    rows, row_weights = results if route_weights is not None else (results, None)
    return rows, row_weights, made[0]


def combine(buffer, plan, rows, route_weights=None):
    """Buffer.combine with gradients: tokens [S, H], and route weights [S, K] or None. The plan stays
    alive until backward has used it."""
    _check_backward(buffer, rows, route_weights)
    results = _Combine.apply(rows, route_weights, buffer, plan)
    return results if route_weights is not None else (results, None)


def expert_weights(buffer, plan, home, slots, *, layer=0):
    """The weights that the rows of this rank meet, [E/R + B, ..] each of gate, up and down: `home`, those
    of its own experts [E/R, ..], and behind them `slots` [B, ..], those of plan.experts_to_copy[rank].
    In backward the gradients of slots go to the ranks whose own experts they are (Buffer.reduce_grad),
    and `home` gets the sums of all ranks; `slots` gets none. Of a buffer that keeps gradients; those of
    the layer's own experts are written over, and zeros afterwards; so are those of slots. On every rank
    these weights, or slices of them without rows, have to take part in the loss: a rank whose backward
    does not come here lets the others wait in reduce_grad until their deadline."""
    _check_backward(buffer, *home, *slots)
    return _ExpertWeights.apply(buffer, plan, layer, *home, *slots)
