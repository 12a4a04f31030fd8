"""Outputs that are used again: rings of slots for what a dispatch delivers and for what experts give."""

import ctypes

from perigee._library import ANY_SLOT, DISPATCH_OUTPUT, EXPERT_OUTPUT, SlotStruct


class OutputSlot:
    """Where the rows of one dispatch are, of Buffer.dispatch with reuse_output, from its end until the
    slot is released: by run_experts with `slot`, or release(). A use after that is a ValueError; one
    of a slot whose dispatch has failed is a PerigeeError with the reason STALE_OBJECT.

    rows [NvS, H] bf16 and route_weights [NvS]: views, which a later dispatch overwrites.
    index, identity: which slot it is, and the sequence of its dispatch.
    """

    def __init__(self, buffer, taken, event, rows, route_weights):
        self._buffer = buffer
        self.taken = taken
        self.event = event  # of its dispatch
        self.rows, self.route_weights = rows, route_weights
        self.index, self.identity = taken.index, taken.identity
        self._released = False

    @property
    def released(self):
        return self._released

    def release(self, *, replayed=False, async_finish=False, stream=None):
        """Nobody reads the rows any more; on a GPU, once `stream` has done what it has been given so far:
        no thread and no other operation waits for that, but a dispatch that takes the slot again. With
        `replayed` once a graph that has captured capture_read is through, which is launched once for it.
        Returns None, or an Event where async_finish."""
        return self._buffer.release_slot(self, replayed, async_finish, stream)

    def capture_read(self, *, stream=None):
        """On a GPU, where `stream` is captured: with every launch of the graph the last read of whoever has
        the slot of this index then is what the stream has been given so far. Releases nothing. The graph
        is launched behind a dispatch that is known to have ended well (its event's synchronize)."""
        self._buffer.capture_slot_read(self, stream)

    def for_use(self, buffer):
        """Its perigee_slot, where it is that buffer's and not released; ValueError else."""
        if self._buffer is not buffer:
            raise ValueError("the slot is another buffer's")
        if self._released:
            raise ValueError(f"slot {self.index} of identity {self.identity} is released already")
        return ctypes.byref(self.taken)

    def note_released(self):
        self._released = True


class ExpertOutput:
    """What run_experts with reuse_output has computed, until the combine that it is given to."""

    def __init__(self, buffer, taken):
        self._buffer = buffer
        self.taken = taken
        self.index, self.identity = taken.index, taken.identity
        self._released = False

    def release(self):
        """It is combined nowhere."""
        slot = self.for_use(self._buffer)
        self._buffer.release_ring_slot(EXPERT_OUTPUT, slot)
        self.note_released()

    for_use = OutputSlot.for_use
    note_released = OutputSlot.note_released


class OutputSlots:
    """A part of Buffer, of one made with dispatch_output_slots or expert_output_slots."""

    # The dispatch that took a slot last: the next one takes the one behind it, unless it has failed.
    _last_slot = None

    def _next_slot(self):
        """The index of the slot that is next in turn, or ANY_SLOT where that is not known."""
        last = self._last_slot
        if last is None or (last.event.done() and last.event.failed):
            return ANY_SLOT
        return (last.index + 1) % self._slots

    def _take_slot(self, taken, event):
        """The OutputSlot of a dispatch that has been submitted."""
        if taken.index == ANY_SLOT:
            self._check_may_wait()
            self._await_end(event)
            taken = self._attachment.taken_slot(event.command)
        self._slots, rows, weights = self._attachment.output_slot(taken.index)
        slot = OutputSlot(self, taken, event,
                          self._shared_at(rows, (self.NvS, self.H), "bfloat16", True),
                          self._shared_at(weights, (self.NvS,), "float32", True))
        self._last_slot = slot
        return slot

    def release_slot(self, slot, replayed, async_finish, stream):
        """OutputSlot.release."""
        self._begin(stream)
        named = slot.for_use(self)
        event = self._release_read(slot, named, replayed)
        slot.note_released()
        return self._end_release(event, async_finish)

    def release_ring_slot(self, ring, named):
        """ExpertOutput.release."""
        self._begin(None)
        self._submit(set(), None, "perigee_release_slot", ring, named)

    # ---- What DeviceBuffer does in another way ----

    def capture_slot_read(self, slot, stream):
        """OutputSlot.capture_read."""
        raise ValueError("the buffer's memory is the host's: no stream reads it")

    def _release_read(self, slot, named, replayed):
        del slot
        if replayed:
            raise ValueError("the buffer's memory is the host's: no graph reads it")
        return self._submit(set(), None, "perigee_release_slot", DISPATCH_OUTPUT, named)

    def _end_release(self, event, async_finish):
        return self._end(event, async_finish, None, event)

    def _await_end(self, event):
        """Blocks; PerigeeError where it failed."""
        self._end(event, False, None, None)


def new_slot(index):
    """A perigee_slot to be told what is taken."""
    return SlotStruct(0, index, 0)
