"""The operations that move a layer's rows and compute on them."""

import ctypes

from perigee._library import OWN_WEIGHTS
from perigee.output_slots import ExpertOutput, new_slot
from perigee.plan import CommPlan


class RowOperations:
    """A part of Buffer."""

    def dispatch(self, hidden_sh, route_weights_sk=None, topk_experts_sk=None,
                 tokens_per_expert=None, *, plan=None, zero_copy=False,
                 router_weights_zero_copy=False, reuse_output=False, async_finish=False, stream=None):
        """Collective. Sends every token to its experts: hidden_sh [n, H], n <= S, route_weights_sk
        [n, K] float32 or None, topk_experts_sk [n, K] int32 with -1 for masked routes.
        tokens_per_expert is taken and not used: the worker counts. With `plan` it follows that one and
        looks at no routes.

        Returns (hidden_nvsh [NvS, H], route_weights_nvs [NvS] or None, cu_seqlens [E+B] or None with a
        plan, plan), and an Event where async_finish. With zero_copy, and router_weights_zero_copy for
        the weights, what is returned is the shard itself, which later operations overwrite.

        With reuse_output the rows go to the next dispatch-output slot instead, where they stay until that
        is released: what is returned are its views, and an OutputSlot behind the plan. Where none is left
        every rank's call fails, with the reason SLOTS_IN_USE on those that have not released the next. The
        first call, and one after a failure, waits for its end, also with async_finish."""
        del tokens_per_expert
        self._begin(stream)
        hidden = self._rows_of(hidden_sh, "hidden_sh", None, self.S)
        count = hidden.shape[0]
        weights = self._optional(route_weights_sk, "route_weights_sk", (count, self.K))
        if plan is None:
            routes = self._array(topk_experts_sk, "topk_experts_sk", "int32", (count, self.K))
        else:
            number = plan.number_for(self)
        copies_weights = weights is not None and not router_weights_zero_copy
        writes = {"input", "weights"} | (set() if reuse_output else {"rows"})
        writes |= {"plan"} if plan is None else set()
        self._await_users(writes)
        self._put(self._input, hidden)
        if weights is not None:
            self._put(self._route_weights, weights)
        made, arrays = plan, None
        if plan is None:
            self._put(self._routes, routes)
            made, arrays = CommPlan(self, next(self._numbers), count), self._empty_plan()
            made.read(arrays)
            number = made.number

        rows, row_weights, get_rows = (None, None, None) if reuse_output else self._results(
            zero_copy, copies_weights)

        def finish():
            if get_rows is not None:
                get_rows()
            if arrays is not None:
                self._get_plan(arrays)

        uses = {"input"} | (writes if not zero_copy or copies_weights else writes - {"rows"})
        command = "perigee_dispatch" if plan is None else "perigee_dispatch_with_plan"
        event, slots = self._submit_dispatch(reuse_output, uses, finish, command, number, count,
                                             int(weights is not None))
        if plan is None:
            made.made_by(event)
        if slots:
            rows, row_weights = slots[0].rows, slots[0].route_weights
        results = (rows, None if weights is None else row_weights,
                   None if arrays is None else arrays["cu_seqlens"], made) + slots
        return self._end_dispatch(event, slots, async_finish, results)

    def _submit_dispatch(self, reuse_output, uses, finish, command, *arguments):
        """The event, and the OutputSlot that it takes, if it takes one."""
        if not reuse_output:
            return self._submit(uses, finish, command, *arguments), ()
        taken = new_slot(self._next_slot())
        event = self._submit(uses, finish, command + "_into_slot", *arguments, taken.index,
                             ctypes.byref(taken))
        return event, (self._take_slot(taken, event),)

    def _results(self, zero_copy, copies_weights):
        """What is returned of the shard: rows, their weights, and what is to be called when the operation
        has ended."""
        rows = self._rows_view if zero_copy else self._empty_like(self._rows)
        row_weights = (self._empty_like(self._row_weights) if copies_weights
                       else self._row_weights_view)

        def get_rows():
            if not zero_copy:
                self._get(rows, self._rows)
            if copies_weights:
                self._get(row_weights, self._row_weights)

        return rows, row_weights, get_rows

    def run_experts(self, plan, *, layer=0, weights_version=1, apply_route_weights=False, slot=None,
                    reuse_output=False, async_finish=False, stream=None):
        """Computes the experts on the rows in the shard, in place; with apply_route_weights each row
        is scaled by its weight. With `slot` on the rows of an OutputSlot, which it releases, and into the
        shard; with reuse_output into the next expert-output slot. Returns None, or an Event where
        async_finish; with reuse_output an ExpertOutput for combine, once all has ended."""
        self._begin(stream)
        number = plan.number_for(self)
        if reuse_output and slot is None:
            raise ValueError("reuse_output takes the rows of a slot")
        arguments = (number, layer, weights_version, int(apply_route_weights))
        self._await_users({"rows"})
        if slot is None:
            event = self._submit(set(), None, "perigee_run_experts", *arguments)
            return self._end(event, async_finish, None, event)
        named = slot.for_use(self)
        if reuse_output:
            self._settle_before_taking()
        event = self._submit(set(), None, "perigee_run_experts_of_slot", *arguments, named,
                             int(reuse_output))
        slot.note_released(event)
        if not reuse_output:
            return self._end(event, async_finish, None, event)
        self._check_may_wait()
        self._await_end(event)
        return ExpertOutput(self, self._attachment.taken_slot(event.command), event)

    def combine(self, plan, hidden_nvsh, route_weights_nvs=None, *, zero_copy=False,
                router_weights_zero_copy=False, async_finish=False, stream=None):
        """Collective. Sums the rows of every token: hidden_nvsh [NvS, H], route_weights_nvs [NvS] or
        None, of any plan that lives; or an ExpertOutput, without weights. Returns (hidden_sh [S, H], route_weights_sk [S, K] or None, event), event None unless
        async_finish. With zero_copy, and router_weights_zero_copy, what is given must be the shard's
        own view, and is changed."""
        self._begin(stream)
        number = plan.number_for(self)
        if isinstance(hidden_nvsh, ExpertOutput):
            return self._combine_slot(number, hidden_nvsh, route_weights_nvs, async_finish)
        rows = self._rows_of(hidden_nvsh, "hidden_nvsh", self.NvS, self.NvS)
        weights = self._optional(route_weights_nvs, "route_weights_nvs", (self.NvS,))
        staged = self._stage(rows, self._rows, zero_copy, "hidden_nvsh", "zero_copy")
        use_weights = int(weights is not None)
        if weights is not None and self._stage(weights, self._row_weights,
                                               router_weights_zero_copy, "route_weights_nvs",
                                               "router_weights_zero_copy"):
            staged, use_weights = True, OWN_WEIGHTS
        # What still runs may read the shard or write it.
        self._await_users({"rows", "output"} | ({"anything"} if staged else set()))
        command = "perigee_combine"
        if not self._is_view(rows, self._rows):
            # Whatever the shard held before.
            command = "perigee_combine_own_rows"
            self._put(self._rows, rows)
        if weights is not None and not self._is_view(weights, self._row_weights):
            self._put(self._row_weights, weights)
        hidden_sh = self._empty_like(self._output)
        weights_sk = None if weights is None else self._empty_like(self._gathered)

        def finish():
            self._get(hidden_sh, self._output)
            if weights_sk is not None:
                self._get(weights_sk, self._gathered)

        event = self._submit({"output"}, finish, command, number, use_weights)
        return self._end(event, async_finish, (hidden_sh, weights_sk, None),
                         (hidden_sh, weights_sk, event))

    def _combine_slot(self, number, output, weights, async_finish):
        if weights is not None:
            raise ValueError("route_weights_nvs is given, expected none with an ExpertOutput")
        named = output.for_use(self)
        self._await_users({"rows", "output"})
        hidden_sh = self._empty_like(self._output)
        event = self._submit({"output"}, lambda: self._get(hidden_sh, self._output),
                             "perigee_combine_slot", number, named)
        output.note_released(event)
        return self._end(event, async_finish, (hidden_sh, None, None), (hidden_sh, None, event))
