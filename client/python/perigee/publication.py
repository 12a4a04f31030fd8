"""Direct publication: a dispatch in two phases, between which a producer writes its rows to their
final places itself."""

from perigee._library import TOKEN_BYTES, PerigeeError
from perigee.plan import CommPlan


class DispatchTarget:
    """Where a producer's rows go, of Buffer.prepare_dispatch; bound to its buffer and generation. It is
    over when it is published, when another operation writes the shard, when an operation ends early,
    when its token turns out to be no good, and with its buffer.

    plan: the CommPlan that it will be, good for operations once it is published. Row plan.dst[i] % NvS
        of rank plan.dst[i] // NvS is that of route i, token i // K, where plan.dst[i] >= 0; other
        routes get theirs from it when all is published.
    mapped_hidden: [R] the rows [NvS, H] of each rank's shard, for this process to write until it
        publishes; of a buffer without peer_store None but for its own. Buffer.store_rows stores to any.
    tokens: how many tokens it is for.
    """

    def __init__(self, buffer, plan, cu_seqlens):
        self.buffer_name, self.rank, self.generation = buffer.name, buffer.rank, buffer.generation
        self._buffer = buffer
        self.plan = plan
        self.cu_seqlens = cu_seqlens  # the plan's, which is not waited for here
        self.tokens = plan.tokens
        self.mapped_hidden = [buffer.mapped_rows(rank) for rank in range(buffer.R)]

    def number_for(self, buffer):
        """Its number, where it was made by that buffer; else a PerigeeError, as the worker would tell
        it."""
        for reason, same in (("STALE_GENERATION", self.generation == buffer.generation),
                             ("WRONG_RANK", self.rank == buffer.rank),
                             ("WRONG_BUFFER", self.buffer_name == buffer.name)):
            if not same:
                raise _refusal("PERMISSION_DENIED", reason, self, buffer)
        if self._buffer is not buffer:  # of an attachment that has ended
            raise _refusal("FAILED_PRECONDITION", "STALE_OBJECT", self, buffer)
        return self.plan.number


class PreparedPublication:
    """Of Buffer.prepare_publication: holds a publication token, and is good for one publish.

    target: what it publishes.
    """

    def __init__(self, target, has_weights):
        self.target = target
        self.has_weights = has_weights
        self._used = False

    @property
    def used(self):
        """Whether it has been given to publish."""
        return self._used

    def number_for(self, buffer):
        """The target's number; a PerigeeError where it has been used. The other ranks need not know."""
        number = self.target.number_for(buffer)
        if self._used:
            raise _refusal("PERMISSION_DENIED", "SPENT", self.target, buffer)
        return number

    def note_used(self):
        """Its publish has been submitted."""
        self._used = True

    def note_unused(self):
        """The program of its publish was not handed over."""
        self._used = False


def _refusal(code_name, reason, target, buffer):
    message = (f"publication refused: {reason}: it is of rank {target.rank} of {target.buffer_name}, "
               f"generation {target.generation}; this is rank {buffer.rank} of {buffer.name}, "
               f"generation {buffer.generation}")
    return PerigeeError(code_name, message, reason, "publish", buffer.generation, 0, buffer.rank, -1,
                        -1, -1, [])


class DirectPublication:
    """A part of Buffer: the steps in their order, of which prepare_publication may come before the
    producer, beside it or after it. The rows and the plan are bit for bit those of a dispatch.

    A use that is refused is a PerigeeError with the reason STALE_GENERATION, WRONG_RANK, FORGED,
    WRONG_BUFFER, UNKNOWN, EXPIRED or SPENT, or where there is no such target, or no longer,
    STALE_OBJECT. While a publication is prepared, operations that would write the shard are refused
    with PUBLICATION_PENDING.
    """

    def mapped_rows(self, rank):
        """The rows [NvS, H] of a rank's shard, or None: as DispatchTarget.mapped_hidden."""
        if rank == self.rank:
            return self.hidden_nvsh_buffer_view
        pointer = self._attachment.peer_rows(rank)
        return None if pointer is None else self._shared_at(pointer, (self.NvS, self.H), "bfloat16", writable=True)

    def prepare_dispatch(self, topk_experts_sk, tokens_per_expert=None, *, async_finish=False,
                         stream=None):
        """Collective. Plans as dispatch does; topk_experts_sk [n, K] int32. What lay in the shard is
        gone. Returns a DispatchTarget, and an Event where async_finish: producers write behind it."""
        del tokens_per_expert
        self._begin(stream)
        routes = self._routes_of(topk_experts_sk)
        count = routes.shape[0]
        self._await_users({"input", "rows", "plan"})
        self._put(self._routes, routes)
        plan, arrays = CommPlan(self, next(self._numbers), count), self._empty_plan()
        plan.read(arrays)
        event = self._submit({"input", "plan"}, lambda: self._get_plan(arrays),
                             "perigee_prepare_dispatch", plan.number, count)
        plan.made_by(event)
        target = DispatchTarget(self, plan, arrays["cu_seqlens"])
        return self._end(event, async_finish, target, (target, event))

    def prepare_publication(self, target, route_weights_sk=None, *, token=None, async_finish=False,
                            stream=None):
        """Sends all that a dispatch moves but rows; route_weights_sk [n, K] float32 or None. token: of
        Cluster.issue_tokens; None: the worker draws one of its own. Returns a PreparedPublication, and an
        Event where async_finish: what follows on the stream, or in this process, goes on beside it."""
        if token is not None and (not isinstance(token, bytes) or len(token) != TOKEN_BYTES):
            raise ValueError(f"token is no {TOKEN_BYTES} bytes, as Cluster.issue_tokens gives them")
        self._begin(stream)
        number = target.number_for(self)
        weights = self._optional(route_weights_sk, "route_weights_sk", (target.tokens, self.K))
        self._await_users({"weights"})
        if weights is not None:
            self._put(self._route_weights, weights)
        event = self._submit({"weights"}, None, "perigee_prepare_publication", number,
                             int(weights is not None), token)
        prepared = PreparedPublication(target, weights is not None)
        return self._end(event, async_finish, prepared, (prepared, event))

    def store_rows(self, target, hidden_sh, *, async_finish=False, stream=None):
        """The plainest producer: copies hidden_sh [n, H] to its places, on whatever rank. Returns None,
        or an Event where async_finish."""
        self._begin(stream)
        number = target.number_for(self)
        hidden = self._rows_of(hidden_sh, "hidden_sh", target.tokens, target.tokens)
        self._await_users({"input"})
        self._put(self._input, hidden)
        event = self._submit({"input"}, None, "perigee_store_rows", number)
        return self._end(event, async_finish, None, event)

    def publish(self, prepared, *, zero_copy=False, router_weights_zero_copy=False,
                async_finish=False, stream=None):
        """Collective. Behind all that this rank's producer has written, and on the GPU behind what the
        stream has been given; waits for every rank's. Once for a PreparedPublication, whose token is
        spent whatever becomes of it. Returns what dispatch returns."""
        self._begin(stream)
        number = prepared.number_for(self)
        copies_weights = prepared.has_weights and not router_weights_zero_copy
        self._await_users({"rows"})
        rows, row_weights, finish = self._results(zero_copy, copies_weights)
        uses = set() if zero_copy and not copies_weights else {"rows"}
        event = self._submit(uses, finish, "perigee_publish", number)
        # Not before: what fails up to here has left the publication as it was.
        prepared.note_used()
        event.on_drop = prepared.note_unused
        target = prepared.target
        results = (rows, row_weights if prepared.has_weights else None, target.cu_seqlens, target.plan)
        return self._end(event, async_finish, results, results + (event,))
