"""What one rank's process does in slots_test.py. Failures are told by assertion errors."""

import contextlib
import copy

import numpy

import perigee
import python_cluster
from rank_steps import Inputs

SLOTS = 3


def run(address, name, rank, seed, steps):
    return python_cluster.take_steps(globals(), address, name, rank, seed, steps)


def _dispatch(buffer, mine, **options):
    return buffer.dispatch(mine.hidden, mine.weights, mine.routes, reuse_output=True, **options)


def _refused(reason, call):
    try:
        call()
    except perigee.PerigeeError as error:
        assert error.reason == reason, error
        return error.message
    raise AssertionError(f"not refused with {reason}")


def keep_rows(buffer, seed):
    """Pending dispatches have what ordinary ones deliver, whatever is done meanwhile."""
    for round in range(2):
        pending = []
        for i in range(SLOTS):
            mine = Inputs(seed + i, buffer.rank)
            rows, weights, cu_seqlens, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes)
            back, _, _ = buffer.combine(plan, rows)
            if round == 0:
                shown, shown_weights, seqlens, again, slot, event = _dispatch(buffer, mine,
                                                                              async_finish=True)
                numpy.testing.assert_array_equal(again.cu_seqlens, cu_seqlens)
                event.wait()
                numpy.testing.assert_array_equal(seqlens, cu_seqlens)
            else:
                shown, shown_weights, seqlens, again, slot = buffer.dispatch(
                    mine.hidden, mine.weights, plan=plan, reuse_output=True)
                assert seqlens is None and again is plan
            assert shown is slot.rows and shown_weights is slot.route_weights
            assert not pending or slot.identity > pending[-1][0].identity
            pending.append((slot, rows, weights, back, again, cu_seqlens[-1]))
        assert sorted(slot.index for slot, *_ in pending) == list(range(SLOTS))
        for slot, rows, weights, back, plan, used in pending:
            numpy.testing.assert_array_equal(slot.rows[:used], rows[:used])
            numpy.testing.assert_array_equal(slot.route_weights[:used], weights[:used])
            # The experts' results may be anywhere; the shard has another plan's rows by now.
            sums, _, _ = buffer.combine(plan, slot.rows * 1)
            numpy.testing.assert_array_equal(sums, back)
            slot.release()
            assert slot.released


def run_layers(buffer, seed):
    """Experts of the workers, from slot to shard and from slot to slot: the sums of one in the shard."""
    mine = Inputs(seed, buffer.rank)
    options = dict(weights_version=3, apply_route_weights=True)
    *_, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes,
                               router_weights_zero_copy=True)
    buffer.prefetch_weight(plan, weights_version=3)
    buffer.run_experts(plan, **options)
    wanted, _, _ = buffer.combine(plan, buffer.hidden_nvsh_buffer_view, zero_copy=True)
    pending = [_dispatch(buffer, mine)[3:5] for _ in range(SLOTS)]
    for i, (plan, slot) in enumerate(pending):
        buffer.prefetch_weight(plan, weights_version=3)
        output = buffer.run_experts(plan, slot=slot, reuse_output=i % 2 == 0, **options)
        assert slot.released
        if i % 2 == 0:
            sums, _, _ = buffer.combine(plan, output)
        else:
            sums, _, _ = buffer.combine(plan, buffer.hidden_nvsh_buffer_view, zero_copy=True)
        numpy.testing.assert_array_equal(sums, wanted)


def run_program(buffer, seed):
    """A layer through a slot, handed over at once."""
    mine = Inputs(seed, buffer.rank)
    *_, plan, slot = _dispatch(buffer, mine)  # whose turn it is, is known from here on
    options = dict(weights_version=3, apply_route_weights=True)
    buffer.prefetch_weight(plan, weights_version=3)
    buffer.run_experts(plan, slot=slot, **options)
    wanted, _, _ = buffer.combine(plan, buffer.hidden_nvsh_buffer_view, zero_copy=True)
    with buffer.program():
        *_, plan, slot, _ = _dispatch(buffer, mine, async_finish=True)
        buffer.prefetch_weight(plan, weights_version=3, async_finish=True)
        buffer.run_experts(plan, slot=slot, async_finish=True, **options)
        sums, _, event = buffer.combine(plan, buffer.hidden_nvsh_buffer_view, zero_copy=True,
                                        async_finish=True)
    event.wait()
    numpy.testing.assert_array_equal(sums, wanted)
    with contextlib.suppress(ZeroDivisionError), buffer.program():
        *_, dropped, _ = _dispatch(buffer, mine, async_finish=True)
        raise ZeroDivisionError
    again = _dispatch(buffer, mine)[4]
    assert (again.index, again.identity) == (dropped.index, dropped.identity), "it was not handed over"
    for use in (dropped.release, lambda: buffer.run_experts(plan, slot=dropped, **options)):
        assert "was not handed over" in _refused("", use)
    again.release()


def try_again(buffer, seed):
    """What was refused or dropped has released nothing, and hides no slot."""
    mine = Inputs(seed, buffer.rank)
    options = dict(weights_version=3, apply_route_weights=True)
    for _ in range(SLOTS):  # each slot is to be had again
        *_, plan, slot = _dispatch(buffer, mine)
        buffer.prefetch_weight(plan, weights_version=3)
        _refused("STALE_WEIGHTS", lambda: buffer.run_experts(plan, slot=slot, weights_version=9))
        assert not slot.released
        with contextlib.suppress(ZeroDivisionError), buffer.program():
            buffer.run_experts(plan, slot=slot, async_finish=True, **options)
            raise ZeroDivisionError
        assert not slot.released
        output = buffer.run_experts(plan, slot=slot, reuse_output=True, **options)
        assert slot.released
        # One rank names none, and all leave.
        taken = copy.copy(output)
        taken.taken = type(output.taken)(output.identity + buffer.rank, output.index, 0)
        _refused("STALE_OBJECT" if buffer.rank else "DECLINED", lambda: buffer.combine(plan, taken))
        assert not taken.released
        buffer.combine(plan, output)
        assert output.released
        # On one rank nobody has waited for a failure, and the next dispatch tells it, also one that waits
        # to be told its slot: it takes part all the same, and gives up what it has taken.
        for forgets in (False, True):
            if buffer.rank == 0:
                buffer.run_experts(plan, async_finish=True, **options)  # the shard has no rows
                if forgets:
                    buffer._last_slot = None
                _refused("STALE_OBJECT", lambda: _dispatch(buffer, mine))
            else:
                _dispatch(buffer, mine)[4].release()
    for slot in [_dispatch(buffer, mine)[4] for _ in range(SLOTS)]:
        slot.release()


def _plan_of(buffer, mine):
    return buffer.dispatch(mine.hidden, mine.weights, mine.routes)[3]


def refuse(buffer, seed):
    """Every use of a slot that is none says so, and the group goes on."""
    mine = Inputs(seed, buffer.rank)
    slots = [_dispatch(buffer, mine)[4] for _ in range(SLOTS)]
    assert "needs 4 or more" in _refused("SLOTS_IN_USE", lambda: _dispatch(buffer, mine))
    for call in (slots[1].capture_read, lambda: slots[1].release(replayed=True)):
        try:
            call()
            raise AssertionError("a stream reads the host's memory")
        except ValueError as error:
            assert "the host's" in str(error), error
    slots[1].release()
    assert f"slot {slots[0].index} is next" in _refused("SLOTS_IN_USE",
                                                        lambda: _dispatch(buffer, mine))
    slots[0].release(async_finish=True).wait()
    again = _dispatch(buffer, mine)[4]
    assert again.index == slots[0].index and again.identity > slots[2].identity
    plan = _plan_of(buffer, mine)
    for call in (slots[0].release, lambda: buffer.run_experts(plan, slot=slots[0])):
        try:
            call()
            raise AssertionError("a slot is used that is released")
        except ValueError as error:
            assert "is released already" in str(error), error
    # What the worker says where the client does not know.
    slots[0].note_released(None)
    assert "which is over" in _refused("STALE_OBJECT", slots[0].release)
    again.release()
    again.note_released(None)
    assert "released already" in _refused("STALE_OBJECT", again.release)
    slots[2].release()
    # One by one, more often than there are slots, without a wait but for the first.
    for _ in range(2 * SLOTS):
        slot, event = _dispatch(buffer, mine, async_finish=True)[4:]
        slot.release(async_finish=True)
    event.wait()


def hold_all(buffer, seed):
    """What is left taken the next client takes."""
    mine = Inputs(seed, buffer.rank)
    for _ in range(SLOTS):
        _dispatch(buffer, mine)


def refuse_without_slots(buffer, seed):
    mine = Inputs(seed, buffer.rank)
    message = _refused("INVALID_PROGRAM", lambda: _dispatch(buffer, mine))
    assert "no dispatch-output slots" in message, message
    rows, _, _, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes)
    buffer.combine(plan, rows)
