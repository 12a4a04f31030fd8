"""What one rank's process does in source_test.py. Failures are told by assertion errors."""

import numpy

import perigee
import python_cluster
import rank_steps
from rank_steps import Inputs


def run(address, name, rank, seed, steps):
    return python_cluster.take_steps(globals(), address, name, rank, seed, steps)


def _poison(buffer):
    buffer.barrier()  # other ranks read here up to now
    for view in (buffer.hidden_nvsh_buffer_view, buffer.router_weight_buffer_view):
        view.view(numpy.uint8).fill(0x7b)


def fetch_rows(buffer, seed):
    """What is materialised is what a dispatch leaves, whoever writes into the source shard."""
    mine = Inputs(seed, buffer.rank)
    _poison(buffer)
    rows, weights, cu_seqlens, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes)
    used = cu_seqlens[-1]
    back, _, _ = buffer.combine(plan, rows)
    for in_place in (False, True):
        if in_place:
            rows_view, weights_view = buffer.source_views()
            rows_view[:mine.count] = mine.hidden
            weights_view[:mine.count] = mine.weights
            view = buffer.prepare_source(mine.routes)
        else:
            view, event = buffer.prepare_source(mine.routes, mine.hidden, mine.weights,
                                                async_finish=True)
            event.wait()
        for name in ("dst", "cu_seqlens", "zero_fill_ranges", "experts_to_copy", "load", "home_load"):
            count = mine.count * rank_steps.K if name == "dst" else None
            numpy.testing.assert_array_equal(getattr(view.plan, name)[:count],
                                             getattr(plan, name)[:count])
        for _ in range(2):
            _poison(buffer)
            again, weights_again, seqlens, same = buffer.materialise(view)
            assert same is view.plan and seqlens[-1] == used
            numpy.testing.assert_array_equal(again[:used], rows[:used])
            numpy.testing.assert_array_equal(weights_again[:used], weights[:used])
        shown, _, _, _ = buffer.materialise(view, zero_copy=True, router_weights_zero_copy=True)
        assert shown is buffer.hidden_nvsh_buffer_view
        sums, _, _ = buffer.combine(view.plan, shown, zero_copy=True)
        numpy.testing.assert_array_equal(sums, back)


def refuse(buffer, seed):
    """A dead view, and what is not legal; the group goes on."""
    mine = Inputs(seed, buffer.rank)
    assert buffer.source_access == "load, store, bulk_copy, atomics"
    for needed, said in (("fly", "no way of access"), ("load, store", None)):
        try:
            buffer.source_views(needed)
            assert said is None, needed
        except perigee.PerigeeError as error:
            assert said is not None and said in error.message, error
    first = buffer.prepare_source(mine.routes, mine.hidden, mine.weights)
    second = buffer.prepare_source(mine.routes)
    try:
        buffer.materialise(first)
        raise AssertionError("a dead view was materialised")
    except perigee.PerigeeError as error:
        assert error.reason == "STALE_OBJECT", error
    buffer.materialise(second)


def refuse_without_storage(buffer, seed):
    """The buffer has none."""
    mine = Inputs(seed, buffer.rank)
    for call in (lambda: buffer.source_access, lambda: buffer.prepare_source(mine.routes)):
        try:
            call()
            raise AssertionError("there is a source")
        except perigee.PerigeeError as error:
            assert "source" in error.message, error
