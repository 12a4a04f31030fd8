"""What one rank's process does in buffer_test.py, and the inputs that every process can make for every
rank. Failures are told by assertion errors."""

import copy
import os
import re
import signal

import numpy

import perigee
import python_cluster

RANKS, S, H, K, E, B = 4, 24, 32, 3, 16, 2
INTERMEDIATE = 16


class Inputs:
    """One rank's tokens. A token's first three numbers say whose it is, and all are small integers: so
    that sums of K of them are exact."""

    def __init__(self, seed, rank):
        random = numpy.random.default_rng([seed, rank])
        self.count = int(random.integers(1, S + 1))
        self.values = random.integers(-8, 9, (self.count, H)).astype(numpy.float32)
        self.values[:, 0] = rank
        self.values[:, 1] = numpy.arange(self.count) % 16
        self.values[:, 2] = numpy.arange(self.count) // 16
        # The low experts are wanted more, so that there is something to balance.
        wanted = (numpy.argsort(random.random((self.count, E)) + numpy.arange(E) / 8, axis=1))
        self.routes = wanted[:, :K].astype(numpy.int32)
        self.routes[random.random((self.count, K)) < 0.15] = -1
        self.weights = random.random((self.count, K), dtype=numpy.float32)

    @property
    def hidden(self):
        return perigee.to_bfloat16(self.values)

    @property
    def routes_of_token(self):
        return (self.routes >= 0).sum(axis=1, dtype=numpy.int32)


def _poison(array):
    array.view(numpy.uint8).fill(0x7b)


def _poison_all(buffer):
    """The shard, so that what is not written shows."""
    _poison(buffer.hidden_nvsh_buffer_view)
    _poison(buffer.router_weight_buffer_view)


def _check_rows(buffer, seed, rows, weights, cu_seqlens, plan):
    """Every row is a token's that wants the group's expert; how many rows of each expert."""
    inputs = [Inputs(seed, rank) for rank in range(buffer.R)]
    values = perigee.from_bfloat16(rows)
    padding = {int(first) + i for first, count in plan.zero_fill_ranges for i in range(count)}
    counts = [0] * buffer.E
    start = 0
    for group, end in enumerate(cu_seqlens):
        expert = group if group < buffer.E else plan.experts_to_copy[buffer.rank, group - buffer.E]
        for row in range(start, end):
            if row in padding:
                assert not values[row].any() and weights[row] == 0, f"padding row {row}"
                continue
            source = inputs[int(values[row, 0])]
            token = int(values[row, 1] + 16 * values[row, 2])
            numpy.testing.assert_array_equal(values[row], source.values[token])
            k = list(source.routes[token]).index(expert)
            assert weights[row] == source.weights[token, k], f"weight of row {row}"
            counts[expert] += 1
        start = end
    assert plan.load[buffer.rank] == sum(counts)
    return counts


def _check_sums(mine, hidden_sh, weights_sk):
    """What comes back of rows that nobody has changed."""
    expected = numpy.zeros((S, H), numpy.float32)
    expected[:mine.count] = mine.values * mine.routes_of_token[:, None]
    numpy.testing.assert_array_equal(perigee.from_bfloat16(hidden_sh), expected)
    if weights_sk is None:
        return
    expected = numpy.zeros((S, K), numpy.float32)
    expected[:mine.count] = numpy.where(mine.routes >= 0, mine.weights, 0)
    numpy.testing.assert_array_equal(weights_sk, expected)


def move_rows(buffer, seed):
    """There and back: copies and in place, waited for and not, by a saved plan and its clone."""
    mine = Inputs(seed, buffer.rank)
    _poison_all(buffer)
    rows, weights, cu_seqlens, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes)
    counts = _check_rows(buffer, seed, rows, weights, cu_seqlens, plan)
    kept = rows.copy()
    _poison_all(buffer)  # what combine is given is not what lies there
    hidden_sh, weights_sk, event = buffer.combine(plan, rows, weights)
    assert event is None
    _check_sums(mine, hidden_sh, weights_sk)

    _poison_all(buffer)
    rows, weights, cu_seqlens, second, dispatched = buffer.dispatch(
        mine.hidden, mine.weights, mine.routes, async_finish=True)
    again, weights_again, event = buffer.combine(
        second, buffer.hidden_nvsh_buffer_view, buffer.router_weight_buffer_view, zero_copy=True,
        router_weights_zero_copy=True, async_finish=True)
    event.wait()
    assert dispatched.done() and event.done() and event.duration > 0
    used = cu_seqlens[-1]
    numpy.testing.assert_array_equal(rows[:used], kept[:used])
    for name, array in plan.arrays().items():
        numpy.testing.assert_array_equal(getattr(second, name), array)
    numpy.testing.assert_array_equal(again, hidden_sh)
    numpy.testing.assert_array_equal(weights_again, weights_sk)

    clone = plan.clone()
    plan.release()
    _poison_all(buffer)
    view, none, no_seqlens, same = buffer.dispatch(mine.hidden, plan=clone, zero_copy=True)
    assert none is None and no_seqlens is None and same is clone
    assert view is buffer.hidden_nvsh_buffer_view
    numpy.testing.assert_array_equal(view[:used], kept[:used])
    back, none, _ = buffer.combine(clone, view, zero_copy=True)
    assert none is None
    _check_sums(mine, back, None)
    return counts


def await_the_last(buffer, seed):
    """Arrays of every operation hold their values when the last event has been waited for."""
    mine = Inputs(seed, buffer.rank)
    rows, weights, cu_seqlens, plan, _ = buffer.dispatch(mine.hidden, mine.weights, mine.routes,
                                                         async_finish=True)
    _poison(rows)
    _poison(weights)
    buffer.barrier(async_finish=True)
    buffer.prefetch_weight(plan, weights_version=3, async_finish=True).wait()
    _check_rows(buffer, seed, rows, weights, cu_seqlens, plan)


def _publish(buffer, mine, token=None, *, prepared_first):
    """The steps of a direct publication, up to the last."""
    target = buffer.prepare_dispatch(mine.routes)
    assert target.mapped_hidden[buffer.rank] is buffer.hidden_nvsh_buffer_view
    assert [rows is None for rows in target.mapped_hidden].count(False) in (1, buffer.R)
    if prepared_first:
        prepared, event = buffer.prepare_publication(target, mine.weights, token=token,
                                                     async_finish=True)
    buffer.store_rows(target, mine.hidden)
    if prepared_first:
        event.wait()
    else:
        prepared = buffer.prepare_publication(target, mine.weights, token=token)
    return prepared


def publish_rows(buffer, seed, tokens, peer_store=False):
    """What a direct publication leaves is what a dispatch leaves, whoever gives the token."""
    mine = Inputs(seed, buffer.rank)
    _poison_all(buffer)
    rows, weights, cu_seqlens, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes)
    used = cu_seqlens[-1]
    for token in (None, tokens[buffer.rank][0]):
        buffer.barrier()  # other ranks write here from now on
        _poison_all(buffer)
        prepared = _publish(buffer, mine, token, prepared_first=token is None)
        # A producer may write them where they lie.
        mapped = prepared.target.mapped_hidden
        assert [rows is not None or rank == buffer.rank for rank, rows in enumerate(mapped)] == [
            peer_store or rank == buffer.rank for rank in range(buffer.R)]
        for route, place in enumerate(prepared.target.plan.dst[:mine.count * K]):
            if place >= 0 and mapped[place // buffer.NvS] is not None:
                row = mapped[place // buffer.NvS][place % buffer.NvS]
                numpy.testing.assert_array_equal(row, mine.hidden[route // K])
                row[:] = 1
                row[:] = mine.hidden[route // K]
        again, weights_again, seqlens, published = buffer.publish(prepared)
        _check_rows(buffer, seed, again, weights_again, seqlens, published)
        numpy.testing.assert_array_equal(again[:used], rows[:used])
        numpy.testing.assert_array_equal(weights_again[:used], weights[:used])
        for name in ("cu_seqlens", "zero_fill_ranges", "experts_to_copy", "load", "home_load"):
            numpy.testing.assert_array_equal(getattr(published, name), getattr(plan, name))
        hidden_sh, weights_sk, _ = buffer.combine(published, again, weights_again)
        _check_sums(mine, hidden_sh, weights_sk)
    target = buffer.prepare_dispatch(mine.routes)
    buffer.store_rows(target, mine.hidden)
    view, none, _, _, event = buffer.publish(buffer.prepare_publication(target), zero_copy=True,
                                             async_finish=True)
    event.wait()
    assert none is None and view is buffer.hidden_nvsh_buffer_view
    numpy.testing.assert_array_equal(view[:used], rows[:used])


def _assert_refused(reason, call):
    try:
        call()
    except perigee.PerigeeError as error:
        assert error.reason == reason, f"{error.reason}, expected {reason}: {error}"
        return
    raise AssertionError(f"not refused: {reason}")


def refuse_publications(buffer, seed, tokens):
    """Every use that is none is told from the others; tokens: of this rank, [3] good ones, and the first
    one's forms that are no good, by reason."""
    mine = Inputs(seed, buffer.rank)
    good, others = tokens[buffer.rank]
    prepared = _publish(buffer, mine, good[0], prepared_first=True)
    for call in (lambda: buffer.dispatch(mine.hidden, None, mine.routes),
                 lambda: buffer.prepare_dispatch(mine.routes),
                 lambda: buffer.prepare_publication(prepared.target)):
        _assert_refused("PUBLICATION_PENDING", call)
    buffer.publish(prepared)
    assert prepared.used
    _assert_refused("SPENT", lambda: buffer.publish(prepared))
    _assert_refused("STALE_OBJECT", lambda: buffer.store_rows(prepared.target, mine.hidden))
    _assert_refused("STALE_OBJECT", lambda: buffer.prepare_publication(prepared.target))
    for reason, token in list(others.items()) + [("SPENT", good[0])]:
        target = buffer.prepare_dispatch(mine.routes)
        _assert_refused(reason, lambda: buffer.prepare_publication(target, token=token))
        _assert_refused("STALE_OBJECT", lambda: buffer.prepare_publication(target, token=good[1]))
    target = buffer.prepare_dispatch(mine.routes)
    for bad, text in ((None, "is missing"), (numpy.zeros((S + 1, K), numpy.int32), "25 tokens"),
                      (mine.routes.astype(numpy.int64), "is int64"), (mine.routes[0], "is int32")):
        assert_raises(ValueError, text, lambda: buffer.prepare_dispatch(bad))
    assert_raises(ValueError, "96 bytes", lambda: buffer.prepare_publication(target, token=b"x"))
    assert_raises(ValueError, "hidden_sh is", lambda: buffer.store_rows(target, mine.hidden[1:]))
    for field, value, reason in (("generation", 99, "STALE_GENERATION"), ("rank", 77, "WRONG_RANK"),
                                 ("buffer_name", "other", "WRONG_BUFFER"),
                                 ("_buffer", None, "STALE_OBJECT")):
        other = copy.copy(target)
        setattr(other, field, value)
        _assert_refused(reason, lambda: buffer.prepare_publication(other))
        _assert_refused(reason, lambda: buffer.store_rows(other, mine.hidden))
        _assert_refused(reason, lambda: buffer.publish(perigee.PreparedPublication(other, False)))
    # Nothing of all this has changed it.
    buffer.store_rows(target, mine.hidden)
    rows, weights, seqlens, plan = buffer.publish(
        buffer.prepare_publication(target, mine.weights, token=good[1]))
    return _check_rows(buffer, seed, rows, weights, seqlens, plan)


def _expert(values, gate, up, down):
    rounded = lambda array: perigee.from_bfloat16(perigee.to_bfloat16(array))
    x = values @ gate
    hidden = rounded(x / (1 + numpy.exp(-x)) * (values @ up))
    return hidden @ down


def run_layer(buffer, seed, weights):
    """A whole layer, against every token's experts one by one."""
    mine = Inputs(seed, buffer.rank)
    gate, up, down = weights
    _, _, _, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes, zero_copy=True,
                                    router_weights_zero_copy=True)
    buffer.prefetch_weight(plan, weights_version=3, async_finish=True)
    buffer.run_experts(plan, weights_version=3, apply_route_weights=True, async_finish=True)
    hidden_sh, _, event = buffer.combine(plan, buffer.hidden_nvsh_buffer_view, zero_copy=True,
                                         async_finish=True)
    event.wait()
    found = perigee.from_bfloat16(hidden_sh)
    assert not found[mine.count:].any()
    for token in range(mine.count):
        expected = numpy.zeros(H, numpy.float32)
        for expert, weight in zip(mine.routes[token], mine.weights[token]):
            if expert >= 0:
                expected += weight * _expert(mine.values[token], gate[expert], up[expert],
                                             down[expert])
        error = numpy.abs(found[token] - expected).max()
        assert error <= 0.02 * max(1, numpy.abs(expected).max()), f"token {token}: off by {error}"


def refuse_and_go_on(buffer, seed):
    """A route that cannot be on one rank is every rank's error, and the next operation works."""
    mine = Inputs(seed, buffer.rank)
    routes = mine.routes.copy()
    if buffer.rank == 1:
        routes[0, 0] = E
    try:
        buffer.dispatch(mine.hidden, mine.weights, routes)
        raise AssertionError("a route to expert E was taken")
    except perigee.PerigeeError as error:
        assert error.reason == "BAD_ROUTE", error.reason
        assert error.code_name == "INVALID_ARGUMENT", error.code_name
        assert error.operation == "dispatch" and error.generation == buffer.generation
        assert "16" in error.message, error.message
    # An event tells its operation's failure, every time.
    results = buffer.dispatch(mine.hidden, mine.weights, routes, async_finish=True)
    for _ in range(2):
        try:
            results[-1].wait()
            raise AssertionError("the event is told of no failure")
        except perigee.PerigeeError as error:
            assert error.reason == "BAD_ROUTE", error.reason
    return move_rows(buffer, seed)


def refuse_arguments(buffer, seed):
    """What cannot be is refused before anything is started: the other ranks need not know."""
    mine = Inputs(seed, buffer.rank)
    rows, weights, _, plan = buffer.dispatch(mine.hidden, mine.weights, mine.routes)
    released = plan.clone()
    released.release()
    for kind, text, call in (
        (TypeError, "hidden_sh is of float32", lambda: buffer.dispatch(mine.values)),
        (ValueError, r"hidden_sh is \[1, 31\]", lambda: buffer.dispatch(rows[:1, :31])),
        (ValueError, r"expected \[0 to 24, 32\]", lambda: buffer.dispatch(rows[:25])),
        (ValueError, "topk_experts_sk is missing", lambda: buffer.dispatch(mine.hidden)),
        (ValueError, "topk_experts_sk is int64",
         lambda: buffer.dispatch(mine.hidden, None, mine.routes.astype(numpy.int64))),
        (ValueError, "route_weights_sk is float64",
         lambda: buffer.dispatch(mine.hidden, mine.weights.astype(float), mine.routes)),
        (ValueError, "hidden_nvsh is not the shard's own view",
         lambda: buffer.combine(plan, rows, zero_copy=True)),
        (ValueError, "route_weights_nvs is not the shard's own view",
         lambda: buffer.combine(plan, rows, weights, router_weights_zero_copy=True)),
        (ValueError, "hidden_nvsh is", lambda: buffer.combine(plan, rows[1:])),
        (ValueError, "the plan has been released", lambda: buffer.combine(released, rows)),
    ):
        assert_raises(kind, text, call)
    hidden_sh, weights_sk, _ = buffer.combine(plan, rows, weights)
    _check_sums(mine, hidden_sh, weights_sk)


def assert_raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert re.search(text, str(error)), f"{error}: no {text}"
        return
    raise AssertionError(f"no {kind.__name__}: {text}")


def destroy(buffer, seed):
    """Afterwards it refuses, and what was seen of it can still be looked at."""
    del seed
    view = buffer.hidden_nvsh_buffer_view
    view.fill(2)
    assert not buffer.destroyed
    buffer.destroy()
    buffer.destroy()
    assert buffer.destroyed
    assert not view.any()
    view.fill(1)
    assert (view == 1).all()
    assert_raises(ValueError, "has been destroyed", buffer.barrier)
    assert_raises(ValueError, "has been destroyed", lambda: buffer.hidden_nvsh_buffer_view)


def lose_rank(buffer, seed, lost, worker_pid):
    """Where a rank's worker is killed, every rank's operation ends and says which rank was lost."""
    del seed
    buffer.barrier()
    if buffer.rank == lost:
        os.kill(worker_pid, signal.SIGKILL)
    try:
        while True:
            buffer.barrier()
    except perigee.PerigeeError as error:
        told = error
    assert told.code_name == "UNAVAILABLE", told
    # Afterwards nothing is started any more, and destroy() goes through.
    try:
        buffer.barrier()
        raise AssertionError("an operation after the loss")
    except perigee.PerigeeError as error:
        assert error.code_name in ("UNAVAILABLE", "FAILED_PRECONDITION"), error
    buffer.destroy()
    return told.reason, told.lost_ranks


def run(address, name, rank, seed, steps):
    return python_cluster.take_steps(globals(), address, name, rank, seed, steps)
