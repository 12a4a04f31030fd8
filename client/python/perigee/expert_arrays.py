"""Weights of experts and their gradients: those that the worker shares, and arrays of the caller's own."""

from typing import Any, NamedTuple

from perigee._library import MATRICES, PerigeeError


class _Brought(NamedTuple):
    """Where a caller wants what a prefetch brings, a matrix or its scales."""
    what: str
    array: Any
    slots: Any  # its rows for this rank's slots
    view: Any  # the slots themselves
    has_all_experts: bool


class ExpertArrays:
    """A part of Buffer."""

    def prefetch_weight(self, plan, full_gate_weight=None, full_up_weight=None,
                        full_down_weight=None, *, full_gate_scale=None, full_up_scale=None,
                        full_down_scale=None, layer=0, weights_version=1, async_finish=False,
                        stream=None):
        """Collective. Brings the weights of this rank's remote experts into its slots: those that
        Cluster.load_weights has given the workers as that layer and version. Returns None, or an Event
        where async_finish.

        They are read where they lie (slot_weights), or in arrays of the caller's, which they are copied
        to: full_gate_weight, full_up_weight [E+B, H, H'] and full_down_weight [E+B, H', H], of the
        buffer's format, whose last B rows are filled. The first E are what the caller takes for the
        experts' weights: on the host STALE_WEIGHTS is the failure where one that was brought is another;
        on a GPU nobody looks at them. A caller that has its own experts alone gives [E/R+B, ..]. Rows of
        slots that the plan does not use have no meaning. full_gate_scale and the others: the same of block
        scales, in the shapes of slot_weights."""
        self._begin(stream)
        number = plan.number_for(self)
        brought = self._brought((full_gate_weight, full_up_weight, full_down_weight),
                                (full_gate_scale, full_up_scale, full_down_scale))
        self._await_users({"slots"})

        def finish():
            for one in brought:
                self._get_part(one.slots, one.view)
            self._check_brought([one for one in brought if one.has_all_experts], plan, layer,
                                weights_version)

        event = self._submit({"slots"} if brought else set(), finish if brought else None,
                             "perigee_prefetch_weights", number, layer, weights_version)
        return self._end(event, async_finish, None, event)

    def slot_weights(self):
        """The weights that prefetch_weight has brought to this rank's slots, in the order of the plan's
        experts_to_copy: ((gate [B, H, H'], up, down [B, H', H]), scales). bf16, or uint8 of a buffer of
        another format, of "mxfp4" with two elements of a row in each; scales: None, or those of gate, up
        and down, as Cluster.load_weights has them. For reading; the next prefetch_weight overwrites them."""
        self._check_alive()
        parts, scales = self._attachment.slots()
        show = lambda places: tuple(self._shown(self._constant_at(*place)) for place in places)
        return show(parts), None if scales is None else show(scales)

    def gradients(self, layer=0):
        """A layer's gradients as float32 views, zeros at first: (gate [E/R, H, H'], up, down [E/R, H', H])
        of own experts, and the same [B, ..] of slots, which all layers share. What is added to the
        slots, in the order of the plan's experts_to_copy, reduce_grad brings home."""
        self._check_alive()
        return tuple(tuple(map(self._shown, views)) for views in self._gradient_views(layer))

    def reduce_grad(self, plan, full_gate_grad=None, full_up_grad=None, full_down_grad=None, *,
                    gate_reduce_buffer=None, up_reduce_buffer=None, down_reduce_buffer=None,
                    layer=0, async_finish=False, stream=None):
        """Collective. Adds the gradients in the slots of all ranks to those of this rank's own experts, in
        the same order on every run, and clears its slots that the plan uses. Returns None, or an Event
        where async_finish; no gradient is touched until its end.

        They lie in gradients(layer), or in float32 arrays of the caller's, which are copied there and
        back, if they are not these views. full_gate_grad, full_up_grad [E+B, H, H'] and full_down_grad
        [E+B, H', H]: of this rank's own experts at their places among the first E, whose others are not
        looked at, and of its slots in the last B; [E/R+B, ..] has no others, and [E/R, ..] no slots.
        gate_reduce_buffer and the others: of the slots, [R, B, ..] with those of this rank at its place,
        or these alone, [B, ..]; where the slots are in both they have to be the same memory. What is in
        neither is in gradients(layer). ValueError where B < E/R (check_backward)."""
        self.check_backward()
        self._begin(stream)
        number = plan.number_for(self)
        pairs = self._gradient_pairs(layer, (full_gate_grad, full_up_grad, full_down_grad),
                                     (gate_reduce_buffer, up_reduce_buffer, down_reduce_buffer))
        self._await_users({"gradients"} if pairs else {"gradient arrays"})
        for part, view in pairs:
            self._put(view, part)

        def finish():
            for part, view in pairs:
                self._get_part(part, view)

        event = self._submit({"gradients", "gradient arrays"} if pairs else {"gradients"},
                             finish if pairs else None, "perigee_reduce_gradients", number, layer)
        return self._end(event, async_finish, None, event)

    def check_backward(self):
        """ValueError where B < E/R, with which there is no backward: experts are computed forward without
        a slot, from the weights where they are, but their gradients would have no place."""
        self._check_alive()
        own = self.E // self.R
        if self.B < own:
            raise ValueError(f"{self.name}: B is {self.B}, expected at least E/R = {own}: in backward a "
                             "remote expert without a slot has no place for its gradients")

    # ---- Within ----

    def _brought(self, weights, scales):
        """_Brought of each array that is not the slots' own memory."""
        given = _all_or_none(weights, "full_{}_weight")
        scales_given = _all_or_none(scales, "full_{}_scale")
        if not given and not scales_given:
            return []
        parts, scale_parts = self._attachment.slots()
        if scales_given and scale_parts is None:
            raise ValueError("full_gate_scale is given, and the buffer's weights have no scales")
        wanted = list(zip(MATRICES, weights, parts)) if given else []
        places = [(f"full_{matrix}_weight", *rest) for matrix, *rest in wanted]
        if scales_given:
            places += [(f"full_{matrix}_scale", array, part)
                       for matrix, array, part in zip(MATRICES, scales, scale_parts)]
        found = (self._brought_to(*place) for place in places)
        return [one for one in found if one is not None]

    def _brought_to(self, what, array, place):
        _, shape, dtype = place
        view, rows = self._constant_at(*place), shape[1:]
        array = self._callers(array, what, dtype, [
            (self.E + self.B, *rows), (self.E // self.R + self.B, *rows), (self.B, *rows)])
        slots = self._part(array, array.shape[0] - self.B, self.B)
        if self._is_view(slots, view):
            return None
        self._check_writable(array, what)
        return _Brought(what, array, slots, view, array.shape[0] == self.E + self.B)

    def _gradient_views(self, layer):
        return [[self._plain_at(pointer, shape, "float32", True) for pointer, shape in places]
                for places in self._attachment.gradients(layer)]

    def _gradient_pairs(self, layer, full, reduce):
        """(the caller's, the view) of each array, or part of one, that is not the view's own memory."""
        full_given = _all_or_none(full, "full_{}_grad")
        if not _all_or_none(reduce, "{}_reduce_buffer") and not full_given:
            return []
        pairs = []
        for matrix, array, buffer, home, slots in zip(MATRICES, full, reduce,
                                                      *self._gradient_views(layer)):
            own, in_slots = (None, None) if array is None else self._parts_of_full(
                array, f"full_{matrix}_grad", home.shape)
            if buffer is not None:
                reduced = self._reduce_part(buffer, f"{matrix}_reduce_buffer", slots.shape)
                if in_slots is not None and not self._is_view(reduced, in_slots):
                    raise ValueError(
                        f"{matrix}_reduce_buffer has the slots of this rank in other memory than the last "
                        f"{self.B} rows of full_{matrix}_grad: the gradients could be in either. Expected "
                        f"those rows themselves, or none of them in full_{matrix}_grad, as [E/R, ..]")
                in_slots = reduced
            pairs += [(part, view) for part, view in ((own, home), (in_slots, slots))
                      if part is not None and not self._is_view(part, view)]
        return pairs

    def _parts_of_full(self, array, what, home_shape):
        """The parts of own experts and of slots; None without slots."""
        own, *rows = home_shape
        array = self._callers(array, what, "float32", [
            (self.E + self.B, *rows), (own + self.B, *rows), (own, *rows)])
        self._check_writable(array, what)
        count = array.shape[0]
        first = own * self.rank if count == self.E + self.B else 0
        slots = None if count == own else self._part(array, count - self.B, self.B)
        return self._part(array, first, own), slots

    def _reduce_part(self, array, what, slots_shape):
        array = self._callers(array, what, "float32", [(self.R, *slots_shape), slots_shape])
        self._check_writable(array, what)
        if array.shape == tuple(slots_shape):
            return array
        return self._one_of(array, self.rank)


def _all_or_none(arrays, names):
    """Whether they are given; ValueError where some are and others are not."""
    missing = [names.format(matrix) for matrix, array in zip(MATRICES, arrays) if array is None]
    if missing and len(missing) < len(MATRICES):
        raise ValueError(f"{' and '.join(missing)} missing, expected all or none of "
                         + ", ".join(map(names.format, MATRICES)))
    return not missing


def stale_weights(message, buffer):
    """The failure of a prefetch that has brought what its caller does not have."""
    return PerigeeError("FAILED_PRECONDITION", message, "STALE_WEIGHTS", "prefetch_weights",
                        buffer.generation, 0, buffer.rank, -1, -1, -1, [])
