"""What one rank's process does in buffer_test.py with weights of every format. Failures are told by
assertion errors."""

import numpy

import python_cluster
from rank_steps import B, E, Inputs, assert_raises


def read_slots(buffer, seed, weights, scales):
    """What lies in the slots are the weights of the experts that the plan wants there, in their format."""
    mine = Inputs(seed, buffer.rank)
    _, _, _, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes)
    buffer.prefetch_weight(plan, weights_version=3)
    found, found_scales = buffer.slot_weights()
    assert (found_scales is None) == (scales is None)
    used = 0
    for slot, expert in enumerate(plan.experts_to_copy[buffer.rank]):
        if expert < 0:
            continue
        used += 1
        for views, sources in ((found, weights), (found_scales or (), scales or ())):
            for view, source in zip(views, sources, strict=True):
                assert view.dtype == source.dtype and view.shape == (B, *source.shape[1:])
                numpy.testing.assert_array_equal(view[slot], source[expert])
                assert not view.flags.writeable
    _fill_full(buffer, plan, weights, scales)
    return used


def _fill_full(buffer, plan, weights, scales):
    """The same in arrays of the caller's, [E+B, ..]."""
    full = []
    for kind, sources in (("weight", weights), ("scale", scales or ())):
        for matrix, source in zip(("gate", "up", "down"), sources):
            array = numpy.concatenate((source, numpy.zeros_like(source[:B])))
            array[E:].view(numpy.uint8).fill(0x7b)
            full.append((f"full_{matrix}_{kind}", array, source))
    arrays = {name: array for name, array, _ in full}
    buffer.prefetch_weight(plan, weights_version=3, **arrays)
    for _, array, source in full:
        numpy.testing.assert_array_equal(array[:E], source)
        for slot, expert in enumerate(plan.experts_to_copy[buffer.rank]):
            if expert >= 0:
                numpy.testing.assert_array_equal(array[E + slot], source[expert])
    if scales is not None:
        del arrays["full_up_scale"]
        assert_raises(ValueError, "full_up_scale missing",
                      lambda: buffer.prefetch_weight(plan, **arrays))


def run(address, name, rank, seed, steps):
    return python_cluster.take_steps(globals(), address, name, rank, seed, steps)
