"""One process's attachment to one rank of a buffer: its memory as NumPy arrays, and its commands."""

import ctypes
import math

import numpy

from perigee._library import (LIBRARY, MATRICES, WEIGHT_FORMATS, WEIGHT_SCALE_BLOCKS,
                              WEIGHT_SCALE_TYPES, GradientsStruct, MemoryStruct, OutputSlotStruct,
                              PerigeeError, SlotsStruct, SlotStruct, SourceStruct, call)


class Attachment:
    """Not thread-safe. Its addresses stay valid while any array over them lives."""

    def __init__(self, cluster, buffer, rank):
        self._handle = ctypes.c_void_p()
        call("perigee_attach", cluster.handle, buffer.encode(), rank, ctypes.byref(self._handle))
        self.memory = MemoryStruct(struct_bytes=ctypes.sizeof(MemoryStruct))
        call("perigee_get_memory", self._handle, ctypes.byref(self.memory))

    def __del__(self):
        if getattr(self, "_handle", None):
            LIBRARY.perigee_detach(self._handle)

    @property
    def handle(self):
        return self._handle

    def address(self, field):
        """Of a pointer of perigee_memory."""
        return ctypes.cast(getattr(self.memory, field), ctypes.c_void_p).value

    def leave(self):
        """Ends the attachment, and waits for the worker to have let go."""
        call("perigee_leave", self._handle)

    def array(self, field, shape, writable=True):
        """The array at a pointer of perigee_memory. It keeps the attachment's memory mapped."""
        return self.array_at(getattr(self.memory, field), shape, writable)

    def gradients(self, layer):
        """Pointer and shape of each array of perigee_gradients: (gate, up, down) of own experts, and of
        slots."""
        found, memory = GradientsStruct(struct_bytes=ctypes.sizeof(GradientsStruct)), self.memory
        call("perigee_get_gradients", self._handle, layer, ctypes.byref(found))
        shape = (memory.hidden, memory.intermediate)
        return tuple(
            tuple((getattr(found, f"{kind}_{matrix}"),
                   (count,) + (shape[::-1] if matrix == "down" else shape))
                  for matrix in MATRICES)
            for kind, count in (("home", found.home_experts), ("slot", memory.slots)))

    def slots(self):
        """Address, shape and dtype of each array of perigee_slots: gate, up, down, and their scales, which
        may be none."""
        found, memory = SlotsStruct(struct_bytes=ctypes.sizeof(SlotsStruct)), self.memory
        call("perigee_get_slots", self._handle, ctypes.byref(found))
        name = WEIGHT_FORMATS[found.format]
        shapes = [(memory.hidden, memory.intermediate)] * 2 + [(memory.intermediate, memory.hidden)]
        dtype = "bfloat16" if name == "bf16" else "uint8"
        packed = 2 if name == "mxfp4" else 1
        parts = [(getattr(found, matrix), (found.slots, rows, columns // packed), dtype)
                 for matrix, (rows, columns) in zip(MATRICES, shapes)]
        if not found.scales:
            return parts, None
        blocks = WEIGHT_SCALE_BLOCKS[name]
        return parts, [(getattr(found, f"{matrix}_scales"),
                        (found.slots, *(-(-size // block) for size, block in zip(shape, blocks))),
                        WEIGHT_SCALE_TYPES[name]) for matrix, shape in zip(MATRICES, shapes)]

    def peer_rows(self, rank):
        """Pointer to the rows of another rank's shard; None where they are not mapped."""
        pointer = ctypes.POINTER(ctypes.c_uint16)()
        try:
            call("perigee_peer_rows", self._handle, rank, ctypes.byref(pointer))
        except PerigeeError as error:
            if error.code_name == "FAILED_PRECONDITION":
                return None
            raise
        return pointer

    def output_slot(self, index):
        """How many dispatch-output slots there are, and pointers to the rows and route weights of one."""
        found = OutputSlotStruct(struct_bytes=ctypes.sizeof(OutputSlotStruct))
        call("perigee_get_output_slot", self._handle, index, ctypes.byref(found))
        return found.slots, found.rows, found.route_weights

    def taken_slot(self, command):
        """The perigee_slot that a command, which has ended well, has taken."""
        slot = SlotStruct()
        call("perigee_taken_slot", self._handle, command, ctypes.byref(slot))
        return slot

    def source(self, needed):
        """What is legal on the source shard, and the pointers of perigee_source: rows and route weights.
        needed: the words of what the caller does there, or None."""
        found = SourceStruct(struct_bytes=ctypes.sizeof(SourceStruct))
        call("perigee_get_source", self._handle, None if needed is None else needed.encode(),
             ctypes.byref(found))
        return found.access.decode(), found.tokens, found.route_weights

    def array_at(self, pointer, shape, writable):
        element = pointer._type_
        count = math.prod(shape)
        if count == 0:
            return numpy.empty(shape, dtype=element)
        storage = (element * count).from_address(ctypes.addressof(pointer.contents))
        storage.owner = self
        array = numpy.frombuffer(storage, dtype=element).reshape(shape)
        array.flags.writeable = writable
        return array

    def submit(self, name, *arguments):
        """Hands a command to the worker; its number."""
        command = ctypes.c_uint64()
        call(name, self._handle, *arguments, ctypes.byref(command))
        return command.value

    def wait(self, command, timeout):
        """Waits for a command; how long the worker took for it, in seconds. timeout in seconds."""
        duration = ctypes.c_int64()
        nanoseconds = max(0, min(int(timeout * 1e9), 2**63 - 1))
        call("perigee_wait", self._handle, command, nanoseconds, ctypes.byref(duration))
        return duration.value * 1e-9
