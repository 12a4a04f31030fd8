"""perigee.Buffer where the worker's memory is a GPU's."""

import ctypes
import math
import time

from perigee._device import DeviceArray, loaded_torch, source_of, stream_of, torch_stream
from perigee._host_arrays import shapes_in_words
from perigee._library import LIBRARY, PerigeeError, call
from perigee.buffer import Buffer
from perigee.event import UNDER_WAY, Event
from perigee.program import MOST_OPERATIONS

_LOOK_SECONDS = 20e-6


class DeviceEvent(Event):
    """The end of one operation, and of those handed over before it on the same buffer. Streams wait for
    it; the host need not."""

    ONE_WAIT_IS_ENOUGH = False  # for another stream

    def wait(self, stream=None):
        """What the stream (Buffer has the default) is given from here on comes behind the operation,
        and finds its results in the arrays that it returned. Blocks nobody. A failure that is known
        already is a PerigeeError; synchronize() tells of any."""
        self._buffer.join(self, stream)
        if self.done() and self._error is not None:
            self.told = True
            raise self._error

    def synchronize(self):
        """Blocks until the operation has ended; PerigeeError where it failed, every time."""
        self.check_handed_over()
        if not self.over:
            self._await(self._timeout)
        if self._error is not None:
            self.told = True
            raise self._error

    def of(self, buffer):
        self._buffer = buffer
        self.streams = set()  # that wait for it; on the first its results are copied
        return self

    def _await(self, timeout):
        try:
            self.duration = self._attachment.wait(self._command, timeout)
        except PerigeeError as error:
            if error.reason == UNDER_WAY:
                raise
            self._error = None if self._quiet else error
        self.over = True


class _Allocation:
    """Memory of the GPU for results, where there is no torch to have it of."""

    def __init__(self, attachment, nbytes):
        address = ctypes.c_void_p()
        call("perigee_allocate", attachment.handle, nbytes, ctypes.byref(address))
        self.address = address.value

    def __del__(self):
        LIBRARY.perigee_free(self.address)


class DeviceBuffer(Buffer):
    """Arrays come in as torch tensors, or as anything with __cuda_array_interface__ or __dlpack__, on
    the worker's GPU. They go out as torch tensors where torch is imported, else as
    perigee.DeviceArray. bf16 is bfloat16 here, or its bits in 16-bit integers.

    Operations are ordered with `stream`, by default torch's current one, or the legacy default stream
    without torch: an operation begins behind what the stream has been given before its call, and what
    the stream is given after it comes behind the operation; with async_finish behind the event's
    wait(), on whichever streams that is called for. No call blocks for that. So a failure may be told
    by a later call, or by synchronize(). Calls with different streams are ordered by the caller, as for
    any other kernels."""

    _EVENT = DeviceEvent

    def _map(self, memory):
        self.device = memory.device
        self.device_uuid = memory.device_uuid.decode()
        self._stream = 0
        self._left = False
        self._behind_copies = None  # streams that are behind the last copy of results, if there was one
        super()._map(memory)
        # The plan's arrays lie behind each other.
        self._plan_begin = min(array.address for array in self._plan.values())
        self._plan_bytes = max(array.address + array.nbytes
                               for array in self._plan.values()) - self._plan_begin

    def _array_of(self, field, shape, dtype, writable=True):
        del writable
        return DeviceArray(self._attachment.address(field), shape, dtype, self.device,
                           self._attachment)

    def _plain_at(self, pointer, shape, dtype, writable):
        del writable
        return self._constant_at(ctypes.cast(pointer, ctypes.c_void_p).value, shape, dtype)

    def _shared_at(self, pointer, shape, dtype, writable):
        return self._shown(self._plain_at(pointer, shape, dtype, writable))

    def _constant_at(self, address, shape, dtype):
        return DeviceArray(address, shape, dtype, self.device, self._attachment)

    # ---- Between calls and streams ----

    def _begin(self, stream):
        self._check_alive()
        self._stream = stream_of(stream, self.device)
        while self._under_way and self._under_way[0].done():
            self._await_first()

    def join(self, event, stream):
        """DeviceEvent.wait; of the operations before it, too, whose arrays are to hold their values."""
        self._stream = stream_of(stream, self.device)
        if event in self._under_way:
            for earlier in self._under_way:
                if earlier is event:
                    break
                self._join_one(earlier)
        self._join_one(event)

    def _join_one(self, event):
        event.check_handed_over()
        if self._stream in event.streams:
            return
        event.streams.add(self._stream)
        finish, event._finish = event._finish, None
        if self._left:
            return
        call("perigee_hold_stream", self._attachment.handle, self._stream, event._command)
        # Its results, or those of one before it, may have been copied on another stream.
        self._come_behind_copies()
        if finish is not None:
            finish()
            call("perigee_mark_stream", self._attachment.handle, self._stream)
            self._behind_copies = {self._stream}

    # ---- Output slots ----

    def capture_slot_read(self, slot, stream):
        slot.for_use(self)
        call("perigee_capture_slot_read", self._attachment.handle, stream_of(stream, self.device),
             slot.index)

    def _release_read(self, slot, named, replayed):
        if self._program is not None:
            raise ValueError("a slot is released before or behind program(), not within")
        while len(self._under_way) >= MOST_OPERATIONS:
            self._await_first()
        if replayed:
            command = self._attachment.submit("perigee_release_slot_replayed", named)
        else:
            self.join(slot.event, self._stream)
            command = self._attachment.submit("perigee_release_slot_behind", self._stream, named)
        event = self._new_event(command)
        self._under_way.append(event)
        return event

    def _end_release(self, event, async_finish):
        # The stream is to wait for nothing.
        return event if async_finish else None

    def _await_end(self, event):
        event.synchronize()

    def _come_behind_copies(self):
        if self._behind_copies is not None and self._stream not in self._behind_copies:
            call("perigee_hold_for_mark", self._attachment.handle, self._stream)
            self._behind_copies.add(self._stream)

    def _new_event(self, command, **options):
        return super()._new_event(command, **options).of(self)

    def _before_command(self):
        call("perigee_follow_stream", self._attachment.handle, self._stream)

    def _await_first(self):
        event = self._under_way[0]
        event.check_handed_over()
        self.join(event, self._stream)
        try:
            if not event.told:
                event.synchronize()
        finally:
            if event.over:
                self._under_way.popleft()

    def _await_users(self, writes):
        for event in self._under_way:
            if "anything" in writes or event.uses & writes:
                self.join(event, self._stream)

    def _end(self, event, async_finish, results, async_results):
        if async_finish:
            return async_results
        self._check_may_wait()
        self.join(event, self._stream)
        return results

    def synchronize(self, stream=None):
        """Blocks until all operations have ended, and the stream with them; the first failure that
        nobody has been told of is a PerigeeError."""
        self._begin(stream)
        while self._under_way:
            self._await_first()
        self._await_stream()

    def _await_stream(self):
        self._come_behind_copies()
        end = time.monotonic() + self._timeout
        done = ctypes.c_int32()
        while True:
            call("perigee_stream_done", self._attachment.handle, self._stream, ctypes.byref(done))
            if done.value:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"the stream has not ended its work in {self._timeout} s")
            time.sleep(_LOOK_SECONDS)

    def _before_leaving(self):
        try:
            super()._before_leaving()
            self._await_stream()
        finally:
            self._left = True

    # ---- Arrays ----

    def _shown(self, view):
        torch = loaded_torch()
        return view if torch is None else torch.from_dlpack(view)

    def _rows_of(self, array, what, least, most):
        rows = source_of(array, what, self.device)
        if rows.dtype != "bfloat16":
            raise TypeError(f"{what} is of {rows.dtype}, expected bfloat16 or its bits")
        self._check_rows_shape(rows.shape, what, least, most)
        return rows

    def _shape_of(self, array, what):
        return source_of(array, what, self.device).shape

    def _array(self, array, what, dtype, shape):
        if array is None:
            raise ValueError(f"{what} is missing")
        source = source_of(array, what, self.device)
        if (source.dtype, source.shape) != (dtype, shape):
            raise ValueError(f"{what} is {source.dtype} {list(source.shape)}, expected {dtype} "
                             f"{list(shape)}")
        return source

    @staticmethod
    def _is_view(array, view):
        return array.address == view.address and array.shape == view.shape

    def _copy(self, to, source, nbytes):
        if nbytes > 0:
            call("perigee_copy", self._attachment.handle, self._stream, to, source, nbytes)

    def _address_in_stream(self, source):
        """Of an array that the stream is about to read or write. torch gives memory that is freed on to
        others as soon as the stream that it was allocated on allows that: it is told of this one."""
        torch = loaded_torch()
        if torch is not None and isinstance(source.keep, torch.Tensor):
            source.keep.record_stream(torch_stream(self._stream, self.device))
        return source.address

    def _put(self, view, source):
        item = view.nbytes // max(1, math.prod(view.shape))
        self._copy(view.address, self._address_in_stream(source), math.prod(source.shape) * item)

    def _get(self, result, view):
        self._get_part(source_of(result, "a result", self.device), view)

    # ---- Arrays of the caller's, used where they are ----

    def _callers(self, array, what, dtype, shapes):
        source = source_of(array, what, self.device)
        if source.dtype != dtype or source.shape not in shapes:
            raise ValueError(f"{what} is {source.dtype} {list(source.shape)}, expected "
                             + shapes_in_words(dtype, shapes))
        return source

    @staticmethod
    def _check_writable(array, what):
        """Nobody knows."""

    @staticmethod
    def _part(array, first, count):
        return array.part(first, count)

    @staticmethod
    def _one_of(array, index):
        one = array.part(index, 1)
        return one._replace(shape=one.shape[1:])

    def _get_part(self, part, view):
        self._copy(self._address_in_stream(part), view.address, view.nbytes)

    def _check_brought(self, brought, plan, layer, version):
        """The stream would have to be waited for."""

    def _empty_like(self, view):
        torch = loaded_torch()
        if torch is not None:
            # torch's memory is free for the stream that it is allocated on, and for no other.
            with torch.cuda.stream(torch_stream(self._stream, self.device)):
                return torch.empty(view.shape, dtype=getattr(torch, view.dtype),
                                   device=f"cuda:{self.device}")
        allocation = _Allocation(self._attachment, max(1, view.nbytes))
        return DeviceArray(allocation.address, view.shape, view.dtype, self.device, allocation)

    def _empty_plan(self):
        region = self._empty_like(DeviceArray(0, (self._plan_bytes,), "uint8", self.device, None))
        return {name: self._part_of(region, array) for name, array in self._plan.items()}

    def _part_of(self, region, array):
        """Where an array of the plan has its place in a copy of the plan's bytes."""
        begin = array.address - self._plan_begin
        if isinstance(region, DeviceArray):
            return DeviceArray(region.address + begin, array.shape, array.dtype, self.device, region)
        torch = loaded_torch()
        return region[begin:begin + array.nbytes].view(torch.int32).view(array.shape)

    def _begin_of_plan(self, arrays):
        dst = self._address_in_stream(source_of(arrays["dst"], "a plan", self.device))
        return dst - (self._plan["dst"].address - self._plan_begin)

    def _get_plan(self, arrays):
        self._copy(self._begin_of_plan(arrays), self._plan_begin, self._plan_bytes)

    def _copy_plan(self, arrays):
        copies = self._empty_plan()
        self._copy(self._begin_of_plan(copies), self._begin_of_plan(arrays), self._plan_bytes)
        return copies
