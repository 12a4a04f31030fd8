"""An owner-sharded source: rows stay with the rank that owns their tokens, where every rank may fetch
them."""

from perigee.plan import CommPlan


class SourceView:
    """Where the rows of this rank come from, of Buffer.prepare_source; bound to its buffer. It is over
    with the next prepare_source of the buffer.

    plan: its CommPlan, good for operations from the start, and after the view's end.
    tokens: how many of this rank's tokens it is of.
    """

    def __init__(self, plan, cu_seqlens):
        self.plan = plan
        self.cu_seqlens = cu_seqlens  # the plan's, which is not waited for here
        self.tokens = plan.tokens


class OwnerSource:
    """A part of Buffer, of one made with source_storage. What materialise leaves is bit for bit what a
    dispatch leaves. A view that does not live any more is refused with the reason STALE_OBJECT."""

    @property
    def source_access(self):
        """What is legal on the source shard, in words: "load, store, bulk_copy, atomics". A PerigeeError
        where the buffer has none."""
        self._check_alive()
        return self._attachment.source(None)[0]

    def source_views(self, needed="load, store"):
        """This rank's source shard itself: rows [S, H] bf16 and route weights [S, K] float32. needed: what
        the caller does there; a PerigeeError where less is legal. What prepare_source is not given it
        takes to lie there. A rank may write again when every rank has materialised the view, or entered a
        barrier since."""
        self._check_alive()
        access, rows, weights = self._attachment.source(needed)
        writable = "store" in access
        return (self._shared_at(rows, (self.S, self.H), "bfloat16", writable),
                self._shared_at(weights, (self.S, self.K), "float32", writable))

    def prepare_source(self, topk_experts_sk, hidden_sh=None, route_weights_sk=None, *,
                       async_finish=False, stream=None):
        """Collective. Plans as dispatch does, and moves no row; topk_experts_sk [n, K] int32. hidden_sh
        [n, H] and route_weights_sk [n, K] float32 are copied into the source shard; None: they lie there.
        Returns a SourceView, and an Event where async_finish."""
        self._begin(stream)
        routes = self._routes_of(topk_experts_sk)
        count = routes.shape[0]
        hidden = None
        if hidden_sh is not None:
            hidden = self._rows_of(hidden_sh, "hidden_sh", count, count)
        weights = self._optional(route_weights_sk, "route_weights_sk", (count, self.K))
        uses = {"input", "weights", "plan"}
        self._await_users(uses)
        self._put(self._routes, routes)
        if hidden is not None:
            self._put(self._input, hidden)
        if weights is not None:
            self._put(self._route_weights, weights)
        plan, arrays = CommPlan(self, next(self._numbers), count), self._empty_plan()
        plan.read(arrays)
        event = self._submit(uses, lambda: self._get_plan(arrays), "perigee_prepare_source",
                             plan.number, count, int(hidden is not None), int(weights is not None))
        plan.made_by(event)
        view = SourceView(plan, arrays["cu_seqlens"])
        return self._end(event, async_finish, view, (view, event))

    def materialise(self, view, *, zero_copy=False, router_weights_zero_copy=False,
                    async_finish=False, stream=None):
        """Collective. Fetches every row that belongs here from its owner, as often as wanted. Returns what
        dispatch returns; route weights always come along."""
        self._begin(stream)
        number = view.plan.number_for(self)
        self._await_users({"rows"})
        rows, row_weights, finish = self._results(zero_copy, not router_weights_zero_copy)
        uses = set() if zero_copy and router_weights_zero_copy else {"rows"}
        event = self._submit(uses, finish, "perigee_materialise", number)
        results = (rows, row_weights, view.cu_seqlens, view.plan)
        return self._end(event, async_finish, results, results + (event,))
