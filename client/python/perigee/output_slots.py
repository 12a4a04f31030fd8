"""Outputs that are used again: rings of slots for what a dispatch delivers and for what experts give."""

import contextlib
import ctypes

from perigee._library import ANY_SLOT, DISPATCH_OUTPUT, EXPERT_OUTPUT, PerigeeError, SlotStruct


class _Taken:
    """What has taken a slot of a ring, until what releases it has ended well: a refused operation
    releases nothing."""

    def __init__(self, buffer, taken, event):
        self._buffer = buffer
        self.taken = taken
        self.event = event  # of what has taken it
        self.index, self.identity = taken.index, taken.identity
        self._releasing = None  # the event of what releases it

    @property
    def released(self):
        """Whether that has been called, and has not failed as far as is known."""
        releasing = self._releasing
        return releasing is not None and not (releasing.done() and releasing.failed)

    def for_use(self, buffer):
        """Its perigee_slot, where it is that buffer's and not released; ValueError else. One of a program
        that was not handed over: what that was dropped with, as its name is given again."""
        if self._buffer is not buffer:
            raise ValueError("the slot is another buffer's")
        self.event.check_not_dropped()
        if self.released:
            raise ValueError(f"slot {self.index} of identity {self.identity} is released already")
        return ctypes.byref(self.taken)

    def note_released(self, event):
        self._releasing = event


class OutputSlot(_Taken):
    """Where the rows of one dispatch are, of Buffer.dispatch with reuse_output, from its end until the
    slot is released: by run_experts with `slot`, or release(). A use after that is a ValueError; one
    of a slot whose dispatch has failed is a PerigeeError with the reason STALE_OBJECT.

    rows [NvS, H] bf16 and route_weights [NvS]: views, which a later dispatch overwrites.
    index, identity: which slot it is, and the sequence of its dispatch.
    """

    def __init__(self, buffer, taken, event, rows, route_weights):
        super().__init__(buffer, taken, event)
        self.rows, self.route_weights = rows, route_weights

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


class ExpertOutput(_Taken):
    """What run_experts with reuse_output has computed, until the combine that it is given to."""

    def release(self):
        """It is combined nowhere."""
        slot = self.for_use(self._buffer)
        self.note_released(self._buffer.release_ring_slot(EXPERT_OUTPUT, slot))


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

    def _settle_before_taking(self):
        """Of what takes an expert-output slot and waits for its end: earlier failures are told first, as
        raised behind it they would cost the slot. No other rank waits for it, as they do for a dispatch."""
        if self._program is None:
            while self._under_way:
                self._await_first()

    def _end_dispatch(self, event, slots, async_finish, results):
        """_end; the slot, if it has taken one, nobody has where that raises."""
        try:
            return self._end(event, async_finish, results, results + (event,))
        except BaseException:
            if slots:
                slots[0].note_released(self._give_up(event, slots[0].taken))
            raise

    def _give_up(self, event, taken):
        """The slot that a dispatch takes, unless it fails, and that nobody is given: quietly, as something
        else is raised. What releases it, if that can be told."""
        with contextlib.suppress(Exception):
            if self._program is None and not (event.over and event.failed):
                return self._hand_over("perigee_release_slot", DISPATCH_OUTPUT, ctypes.byref(taken),
                                       quiet=True)
        return None

    def _take_slot(self, taken, event):
        """The OutputSlot of a dispatch that has been submitted."""
        if taken.index == ANY_SLOT:
            self._check_may_wait()
            taken = self._await_taken(event)
        self._slots, rows, weights = self._attachment.output_slot(taken.index)
        slot = OutputSlot(self, taken, event,
                          self._shared_at(rows, (self.NvS, self.H), "bfloat16", True),
                          self._shared_at(weights, (self.NvS,), "float32", True))
        self._last_slot = slot
        return slot

    def _await_taken(self, event):
        try:
            self._await_end(event)
        except PerigeeError:
            # It may have been of an operation before.
            for _ in range(len(self._under_way)):
                with contextlib.suppress(PerigeeError):
                    self._await_first()
            if event.over and not event.failed:
                self._give_up(event, self._attachment.taken_slot(event.command))
            raise
        return self._attachment.taken_slot(event.command)

    def release_slot(self, slot, replayed, async_finish, stream):
        """OutputSlot.release."""
        self._begin(stream)
        named = slot.for_use(self)
        event = self._release_read(slot, named, replayed)
        slot.note_released(event)
        return self._end_release(event, async_finish)

    def release_ring_slot(self, ring, named):
        """ExpertOutput.release."""
        self._begin(None)
        return self._submit(set(), None, "perigee_release_slot", ring, named)

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
