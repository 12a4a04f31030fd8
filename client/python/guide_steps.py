"""What one rank's process does in guide_test.py: one layer's forward and backward as the API guide of the
brief writes them, with arrays of the caller's own. Failures are told by assertion errors."""

import numpy

import perigee
import python_cluster
import training_steps
from rank_steps import assert_raises
from training_steps import INTERMEDIATE, RANKS, VERSION, B, E, H, Inputs

OWN = E // RANKS
SHAPES = ((H, INTERMEDIATE), (H, INTERMEDIATE), (INTERMEDIATE, H))


def base_gradients(seed, rank):
    """What own experts have before the step."""
    random = numpy.random.default_rng([seed, rank, 5])
    return [random.standard_normal((OWN,) + shape, numpy.float32) for shape in SHAPES]


def _full_weights(seed, poison):
    """[E+B, ..] with all experts."""
    full = []
    for matrix in training_steps.make_weights(seed)[0]:
        array = numpy.full((E + B,) + matrix.shape[1:], poison, numpy.uint16)
        array[:E] = perigee.to_bfloat16(matrix)
        full.append(array)
    return full


def _full_gradients(seed, rank):
    """[E+B, ..]: this rank's own, slots clear, and what nobody has to touch."""
    full = []
    for base in base_gradients(seed, rank):
        array = numpy.full((E + B,) + base.shape[1:], numpy.nan, numpy.float32)
        array[rank * OWN:(rank + 1) * OWN] = base
        array[E:] = 0
        full.append(array)
    return full


def _check_slots_are_clear(plan, rank, gradients):
    used = plan.experts_to_copy[rank] >= 0
    for array in gradients:
        assert not array[-B:][used].any(), "a used slot is clear again"


def _place(expert, slot):
    """Of a group of rows in arrays [E+B, ..]: its own number."""
    return expert if slot is None else E + slot


def _experts(groups, rows, weights, scales):
    out = numpy.zeros_like(rows)
    for expert, slot, first, end in groups:
        matrices = [array[_place(expert, slot)] for array in weights]
        out[first:end] = training_steps.expert_forward(rows[first:end], matrices,
                                                       scales[first:end])
    return perigee.to_bfloat16(out)


def _experts_backward(groups, rows, weights, scales, grad_rows, gradients):
    """Returns gradients of the rows, and adds those of weights to `gradients`."""
    grad_x = numpy.zeros_like(rows)
    for expert, slot, first, end in groups:
        place = _place(expert, slot)
        grad_x[first:end], _, *found = training_steps.expert_backward(
            rows[first:end], [array[place] for array in weights], scales[first:end],
            grad_rows[first:end])
        for array, sums in zip(gradients, found):
            array[place] += sums
    return perigee.to_bfloat16(grad_x)


def guide(buffer, seed):
    """Returns sums, gradients of tokens and of own experts, and how many slots were used."""
    mine = Inputs(seed, buffer.rank)
    hidden_sh = perigee.to_bfloat16(mine.hidden)
    route_weights_sk, topk_experts_sk = mine.weights[0], mine.routes[0]
    tokens_per_expert = numpy.bincount(topk_experts_sk[topk_experts_sk >= 0],
                                       minlength=E).astype(numpy.int32)
    full_gate_weight, full_up_weight, full_down_weight = weights = _full_weights(seed, 0x7b7b)
    gradients = _full_gradients(seed, buffer.rank)
    full_gate_grad, full_up_grad, full_down_grad = gradients
    gate_reduce_buffer, up_reduce_buffer, down_reduce_buffer = [array[E:] for array in gradients]

    # Forward communication.
    hidden_nvsh, weights_nvs, cu_seqlens, plan, dispatch_done = buffer.dispatch(
        hidden_sh, route_weights_sk, topk_experts_sk, tokens_per_expert, async_finish=True)
    prefetch_done = buffer.prefetch_weight(
        plan, async_finish=True, full_gate_weight=full_gate_weight, full_up_weight=full_up_weight,
        full_down_weight=full_down_weight, weights_version=VERSION)
    prefetch_done.wait()
    assert dispatch_done.done()
    numpy.testing.assert_array_equal(cu_seqlens, plan.cu_seqlens)

    groups = list(training_steps.groups(buffer, plan))
    rows = perigee.from_bfloat16(hidden_nvsh)
    values = [perigee.from_bfloat16(array) for array in weights]
    expert_output_nvsh = _experts(groups, rows, values, weights_nvs)
    hidden_sh, weights_sk, combine_done = buffer.combine(
        plan, expert_output_nvsh, weights_nvs, async_finish=True)
    combine_done.wait()
    numpy.testing.assert_array_equal(weights_sk[:mine.count],
                                     numpy.where(topk_experts_sk >= 0, route_weights_sk, 0))

    # Backward communication reuses the plan.
    grad_nvsh, _, none, same, dispatch_bwd_done = buffer.dispatch(
        perigee.to_bfloat16(mine.grad), plan=plan, async_finish=True)
    assert none is None and same is plan
    dispatch_bwd_done.wait()
    grad_hidden_nvsh = _experts_backward(groups, rows, values, weights_nvs,
                                         perigee.from_bfloat16(grad_nvsh), gradients)
    reduce_done = buffer.reduce_grad(
        plan, async_finish=True, full_gate_grad=full_gate_grad, full_up_grad=full_up_grad,
        full_down_grad=full_down_grad, gate_reduce_buffer=gate_reduce_buffer,
        up_reduce_buffer=up_reduce_buffer, down_reduce_buffer=down_reduce_buffer)
    grad_sh, _, event = buffer.combine(plan, grad_hidden_nvsh, async_finish=True)
    event.wait()
    assert reduce_done.done()
    _check_slots_are_clear(plan, buffer.rank, gradients)
    own = slice(buffer.rank * OWN, (buffer.rank + 1) * OWN)
    for array in gradients:
        others = numpy.delete(array[:E], range(own.start, own.stop), axis=0)
        assert numpy.isnan(others).all(), "gradients of others are touched"
    _check_replicas(buffer, plan, groups)
    return (perigee.from_bfloat16(hidden_sh), perigee.from_bfloat16(grad_sh),
            [array[own].copy() for array in gradients], int((plan.experts_to_copy >= 0).sum()))


def _check_replicas(buffer, plan, groups):
    rank = buffer.rank
    remote = sum(1 for expert, *_ in groups if expert // OWN != rank)
    in_slots = sum(1 for experts in plan.experts_to_copy for expert in experts
                   if rank * OWN <= expert < (rank + 1) * OWN)
    assert plan.remote_stats.tolist() == [remote, in_slots], plan.remote_stats
    assert plan.remote_stats.dtype == numpy.int32
    clone = plan.clone()
    numpy.testing.assert_array_equal(clone.remote_stats, plan.remote_stats)
    for name in ("dup_groups", "dup_loffs", "dup_counts"):
        assert not hasattr(plan, name)


def _dispatch(buffer, seed):
    mine = Inputs(seed, buffer.rank)
    return buffer.dispatch(perigee.to_bfloat16(mine.hidden), None, mine.routes[0])[3]


def fill_other_layouts(buffer, seed):
    """Weights of own experts and slots alone, the slots' own memory, and one prefetch behind another."""
    plan = _dispatch(buffer, seed)
    full = _full_weights(seed, 1)
    rank = buffer.rank
    short = [numpy.concatenate((array[rank * OWN:(rank + 1) * OWN] + 1, array[E:]))
             for array in full]
    kept = [array[:OWN].copy() for array in short]
    # Not waited for before the slots have another layer's.
    buffer.prefetch_weight(plan, *short, weights_version=VERSION, async_finish=True)
    buffer.prefetch_weight(plan, layer=1, weights_version=VERSION, async_finish=True).wait()
    slots, scales = buffer.slot_weights()
    assert scales is None
    used = [(slot, expert) for slot, expert in enumerate(plan.experts_to_copy[rank]) if expert >= 0]
    others = training_steps.make_weights(seed)[1]
    for array, own, source, view, other in zip(short, kept, full, slots, others):
        numpy.testing.assert_array_equal(array[:OWN], own)
        for slot, expert in used:
            numpy.testing.assert_array_equal(array[OWN + slot], source[expert])
            numpy.testing.assert_array_equal(view[slot], perigee.to_bfloat16(other[expert]))
    buffer.prefetch_weight(plan, *slots, weights_version=VERSION)
    for source, view in zip(full, slots):
        for slot, expert in used:
            numpy.testing.assert_array_equal(view[slot], source[expert])


def reduce_other_layouts(buffer, seed):
    """The views themselves, own experts alone with a reduce buffer of all ranks, and slots in place."""
    plan = _dispatch(buffer, seed)
    rank, random = buffer.rank, numpy.random.default_rng([seed, buffer.rank, 6])
    base = base_gradients(seed, rank)
    slots = [random.standard_normal((B,) + shape, numpy.float32) for shape in SHAPES]
    home_views, slot_views = buffer.gradients()

    def into_views():
        for views, sources in ((home_views, base), (slot_views, slots)):
            for view, source in zip(views, sources):
                view[:] = source

    def named(full, reduce):
        names = dict(zip(("full_gate_grad", "full_up_grad", "full_down_grad"), full))
        return names | dict(zip(("gate_reduce_buffer", "up_reduce_buffer", "down_reduce_buffer"),
                                reduce))

    into_views()
    buffer.reduce_grad(plan)
    wanted = [view.copy() for view in home_views]
    into_views()
    buffer.reduce_grad(plan, **named(home_views, slot_views))
    for view, sums in zip(home_views, wanted):
        numpy.testing.assert_array_equal(view, sums)
    _check_slots_are_clear(plan, rank, slot_views)

    own = [array.copy() for array in base]
    reduce = [numpy.full((RANKS,) + array.shape, numpy.nan, numpy.float32) for array in slots]
    for array, source in zip(reduce, slots):
        array[rank] = source
    # One behind the other, into the same views.
    own_again = [numpy.concatenate((array, source)) for array, source in zip(base, slots)]
    buffer.reduce_grad(plan, **named(own, reduce), async_finish=True)
    buffer.reduce_grad(plan, **named(own_again, ()), async_finish=True).wait()
    for array, again, sums in zip(own, own_again, wanted):
        numpy.testing.assert_array_equal(array, sums)
        numpy.testing.assert_array_equal(again[:OWN], sums)
    _check_slots_are_clear(plan, rank, [array[rank] for array in reduce])
    _check_slots_are_clear(plan, rank, own_again)
    for array in reduce:
        assert numpy.isnan(numpy.delete(array, rank, axis=0)).all()

    into_views()
    own = [array.copy() for array in base]
    buffer.reduce_grad(plan, *own)
    for array, sums in zip(own, wanted):
        numpy.testing.assert_array_equal(array, sums)


def refuse(buffer, seed):
    """What cannot be is said before anything is started; weights that are others', behind it."""
    plan = _dispatch(buffer, seed)
    full = _full_weights(seed, 0)
    gradients = _full_gradients(seed, buffer.rank)
    readonly = full[0].copy()
    readonly.flags.writeable = False
    prefetch = lambda *arrays, **options: lambda: buffer.prefetch_weight(plan, *arrays, **options)
    reduce = lambda *arrays, **options: lambda: buffer.reduce_grad(plan, *arrays, **options)
    apart = dict(zip(("gate_reduce_buffer", "up_reduce_buffer", "down_reduce_buffer"),
                     (array[E:].copy() for array in gradients)))
    for kind, text, call in (
        (ValueError, "full_up_weight and full_down_weight missing, expected all or none of",
         prefetch(full[0])),
        (TypeError, "full_gate_weight is a list, expected a numpy.ndarray",
         prefetch([1], *full[1:])),
        (ValueError, r"full_down_weight is uint16 \[10, 32, 24\], expected uint16, bf16's bits, "
         r"\[10, 24, 32\] or \[4, 24, 32\] or \[2, 24, 32\]", prefetch(*full[:2], full[0])),
        (ValueError, "full_gate_weight is float32", prefetch(full[0].astype("f4"), *full[1:])),
        (ValueError, "full_gate_weight is for reading only", prefetch(readonly, *full[1:])),
        (ValueError, "the buffer's weights have no scales",
         prefetch(*full, full_gate_scale=full[0], full_up_scale=full[0], full_down_scale=full[0])),
        (ValueError, "up_reduce_buffer and down_reduce_buffer missing",
         reduce(*gradients, gate_reduce_buffer=gradients[0][E:])),
        (ValueError, "full_gate_grad and full_down_grad missing",
         reduce(full_up_grad=gradients[1])),
        (ValueError, "full_up_grad is float64", reduce(gradients[0], gradients[1].astype(float),
                                                       gradients[2])),
        (ValueError, "gate_reduce_buffer has the slots of this rank in other memory than the last 2 "
         "rows of full_gate_grad", reduce(*gradients, **apart)),
    ):
        assert_raises(kind, text, call)
    # Other weights than those that were loaded.
    for array in full:
        array[:E] ^= 1
    used = (plan.experts_to_copy[buffer.rank] >= 0).any()
    event = buffer.prefetch_weight(plan, *full, weights_version=VERSION, async_finish=True)
    for _ in range(2):
        try:
            event.wait()
            assert not used, "nobody sees that weights are others"
        except perigee.PerigeeError as error:
            assert used and error.reason == "STALE_WEIGHTS", error
            assert f"layer 0, weights_version {VERSION}" in error.message, error
    buffer.barrier()
    return bool(used)


def run(address, name, rank, seed, steps):
    return python_cluster.take_steps(globals(), address, name, rank, seed, steps)
