"""perigee.Buffer where the worker's memory is a GPU's."""

import ctypes
import math
import time

from perigee._device import DeviceArray, loaded_torch, source_of, stream_of
from perigee._library import LIBRARY, PerigeeError, call
from perigee.buffer import Buffer
from perigee.event import UNDER_WAY, Event

_LOOK_SECONDS = 20e-6


class DeviceEvent(Event):
    """The end of one operation, and of those handed over before it on the same buffer. Streams wait for
    it; the host need not."""

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
        if not self.over:
            self._await(self._timeout)
        if self._error is not None:
            self.told = True
            raise self._error

    def of(self, buffer):
        self._buffer = buffer
        self.joined = False
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
    wait(). No call blocks for that. So a failure may be told by a later call, or by synchronize().
    Calls with different streams are ordered by the caller, as for any other kernels."""

    _EVENT = DeviceEvent

    def _map(self, memory):
        self.device = memory.device
        self.device_uuid = memory.device_uuid.decode()
        self._stream = 0
        self._left = False
        super()._map(memory)
        # The plan's arrays lie behind each other.
        self._plan_begin = min(array.address for array in self._plan.values())
        self._plan_bytes = max(array.address + array.nbytes
                               for array in self._plan.values()) - self._plan_begin

    def _array_of(self, field, shape, dtype, writable=True):
        del writable
        return DeviceArray(self._attachment.address(field), shape, dtype, self.device,
                           self._attachment)

    # ---- Between calls and streams ----

    def _begin(self, stream):
        self._check_alive()
        self._stream = stream_of(stream, self.device)
        while self._under_way and self._under_way[0].done():
            self._await_first()

    def join(self, event, stream):
        """DeviceEvent.wait; of the operations before it, too, whose arrays are to hold their values."""
        if event.joined:
            return
        self._stream = stream_of(stream, self.device)
        for earlier in self._under_way:
            if earlier is event:
                break
            self._join_one(earlier)
        self._join_one(event)

    def _join_one(self, event):
        if event.joined:
            return
        event.joined = True
        finish, event._finish = event._finish, None
        if self._left:
            return
        call("perigee_hold_stream", self._attachment.handle, self._stream, event._command)
        if finish is not None:
            finish()

    def _new_event(self, command, **options):
        return super()._new_event(command, **options).of(self)

    def _before_command(self):
        call("perigee_follow_stream", self._attachment.handle, self._stream)

    def _await_first(self):
        event = self._under_way[0]
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

    def _put(self, view, source):
        item = view.nbytes // max(1, math.prod(view.shape))
        self._copy(view.address, source.address, math.prod(source.shape) * item)

    def _get(self, result, view):
        self._copy(source_of(result, "a result", self.device).address, view.address, view.nbytes)

    def _empty_bytes(self, nbytes):
        """An array of bytes, and its address."""
        torch = loaded_torch()
        if torch is not None:
            region = torch.empty(max(1, nbytes), dtype=torch.uint8, device=f"cuda:{self.device}")
            return region, region.data_ptr()
        allocation = _Allocation(self._attachment, max(1, nbytes))
        return allocation, allocation.address

    def _empty_like(self, view):
        owner, address = self._empty_bytes(view.nbytes)
        return self._shown(DeviceArray(address, view.shape, view.dtype, self.device, owner))

    def _empty_plan(self):
        owner, address = self._empty_bytes(self._plan_bytes)
        return {name: self._shown(DeviceArray(address + array.address - self._plan_begin,
                                              array.shape, array.dtype, self.device, owner))
                for name, array in self._plan.items()}

    def _get_plan(self, arrays):
        first = source_of(arrays["dst"], "a plan", self.device).address
        begin = first - (self._plan["dst"].address - self._plan_begin)
        self._copy(begin, self._plan_begin, self._plan_bytes)

    def _copy_plan(self, arrays):
        copies = self._empty_plan()
        first, second = (source_of(of["dst"], "a plan", self.device).address
                         for of in (copies, arrays))
        offset = self._plan["dst"].address - self._plan_begin
        self._copy(first - offset, second - offset, self._plan_bytes)
        return copies
