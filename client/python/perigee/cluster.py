"""A connection to a coordinator."""

import ctypes
import operator

import numpy

from perigee._library import (LIBRARY, MATRICES, NAME_BYTES, TOKEN_BYTES, WEIGHT_FORMATS,
                              WEIGHT_SCALE_BLOCKS, WEIGHT_SCALE_TYPES, ShapeStruct, WeightsStruct,
                              call)
from perigee.bfloat16 import bits_of

_MOST_SECONDS = 3600
_MOST_SMS = 2**31 - 1  # of any GPU there is far fewer; the worker says how many it has


def _format_of(name):
    if name not in WEIGHT_FORMATS:
        raise ValueError(f"weight_format is {name!r}, expected one of {', '.join(WEIGHT_FORMATS)}")
    return WEIGHT_FORMATS.index(name)


def _bytes_of(array, what, dtype):
    array = numpy.asarray(array)
    if array.dtype != dtype:
        raise TypeError(f"{what} is of {array.dtype}, expected {dtype}")
    return numpy.ascontiguousarray(array)


def _milliseconds(seconds, what):
    """0: the default."""
    if seconds is None:
        return 0
    if not 0.001 <= seconds <= _MOST_SECONDS:
        raise ValueError(f"{what} is {seconds}, expected 0.001 to {_MOST_SECONDS} seconds, or None")
    return round(seconds * 1000)


def _sms(count, what):
    """0: the default."""
    if count is None:
        return 0
    if not 1 <= operator.index(count) <= _MOST_SMS:
        raise ValueError(f"{what} is {count}, expected 1 to {_MOST_SMS}, or None")
    return operator.index(count)


def _is_high(priority):
    if operator.index(priority) > 0:
        raise ValueError(f"comm_stream_priority is {priority}, expected 0, or less for one that goes "
                         "before other streams, as CUDA has it")
    return priority < 0


class Cluster:
    """Makes and deletes groups and buffers, and loads expert weights. Thread-safe; calls block."""

    def __init__(self, address):
        """address: HOST:PORT of the coordinator."""
        self._handle = ctypes.c_void_p()
        call("perigee_connect", address.encode(), ctypes.byref(self._handle))

    def close(self):
        """Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None:
            LIBRARY.perigee_disconnect(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    @property
    def handle(self):
        if self._handle is None:
            raise ValueError("the cluster has been closed")
        return self._handle

    def create_group(self, ranks, backend="host", group_id=""):
        """The name of a new group, once it is ACTIVE."""
        name = ctypes.create_string_buffer(NAME_BYTES)
        call("perigee_create_group", self.handle, group_id.encode(), ranks, backend.encode(), name)
        return name.value.decode()

    def create_buffer(self, group, *, S, H, K, E, B=None, token_padding=0, intermediate=0, layers=0,
                      gradients=False, weight_format="bf16", weight_scales=False, refetch=False,
                      peer_store=False, source_storage=False, dispatch_output_slots=0,
                      expert_output_slots=0, num_sms=None, num_local_sms=None, enable_pdl=True,
                      comm_stream_priority=0, operation_timeout=None, warmup_timeout=None,
                      buffer_id=""):
        """The name of a new buffer of the group, once it is ACTIVE. B: E / R unless given;
        intermediate and layers: H' and how many layers of weights are kept, none unless given. gradients:
        whether gradients of these are kept too, in float32, which Buffer.reduce_grad brings home.
        weight_format: "bf16", "8bit" or "mxfp4"; with weight_scales block scales come with the last two;
        workers compute with bf16, the others they bring to the experts of the caller. refetch: whether
        a program's run_experts fetches stale slots again. peer_store: whether a Buffer gets the rows of
        every rank's shard (DispatchTarget.mapped_hidden), and not those of its own alone.
        source_storage: whether there is an owner-sharded source (Buffer.prepare_source).
        dispatch_output_slots, expert_output_slots: how many outputs are kept in rings, to be used again
        (Buffer.dispatch and run_experts with reuse_output); none unless given.

        operation_timeout, warmup_timeout: how long an operation waits for other ranks, and the first of
        each generation, in seconds; 10 and 30 unless given. On a GPU, num_sms: SMs of kernels that reach
        other ranks, the worker's choice unless given; num_local_sms: of the others, all unless given.
        enable_pdl: whether kernels begin while those before them end (programmatic dependent launch).
        comm_stream_priority: 0, or less, where the buffer's kernels go before those of other streams;
        there is one step."""
        shape = ShapeStruct(
            struct_bytes=ctypes.sizeof(ShapeStruct), tokens=S, hidden=H, topk=K, experts=E,
            slots=-1 if B is None else B, token_padding=token_padding, intermediate=intermediate,
            layers=layers, gradients=int(gradients), weight_format=_format_of(weight_format),
            weight_scales=int(weight_scales), refetch=int(refetch), peer_store=int(peer_store),
            source_storage=int(source_storage), dispatch_output_slots=dispatch_output_slots,
            expert_output_slots=expert_output_slots,
            operation_timeout_ms=_milliseconds(operation_timeout, "operation_timeout"),
            warmup_timeout_ms=_milliseconds(warmup_timeout, "warmup_timeout"),
            sms=_sms(num_sms, "num_sms"), local_sms=_sms(num_local_sms, "num_local_sms"),
            no_programmatic_launch=int(not enable_pdl),
            high_priority_stream=int(_is_high(comm_stream_priority)))
        name = ctypes.create_string_buffer(NAME_BYTES)
        call("perigee_create_buffer", self.handle, group.encode(), buffer_id.encode(),
             ctypes.byref(shape), name)
        return name.value.decode()

    def delete_group(self, group):
        """With all its buffers."""
        call("perigee_delete_group", self.handle, group.encode())

    def delete_buffer(self, buffer):
        call("perigee_delete_buffer", self.handle, buffer.encode())

    def issue_tokens(self, buffer, rank, count=1):
        """Publication tokens for one rank, in the generation that lives: each is good once, for
        Buffer.prepare_publication. Whoever has one may use it: they are secret."""
        room = ctypes.create_string_buffer(max(1, min(count, 1024)) * TOKEN_BYTES)
        call("perigee_issue_tokens", self.handle, buffer.encode(), rank, count, room)
        return [room.raw[i * TOKEN_BYTES:(i + 1) * TOKEN_BYTES] for i in range(count)]

    def load_weights(self, buffer, layer, weights_version, gate, up, down, *, weight_format="bf16",
                     scales=None):
        """Gives every rank its home experts of one layer. gate, up: [E, H, H'], down: [E, H', H],
        bf16 bits; of "8bit" uint8 of these shapes, of "mxfp4" uint8 with two elements of a row in each.
        scales: of gate, up and down [rows, columns], where the buffer has them: of "8bit" float32
        [E, rows / 128, columns / 128], of "mxfp4" uint8 [E, rows, columns / 32], rounded up.
        weights_version: not 0; operations name it."""
        kind = _format_of(weight_format)
        take = bits_of if kind == 0 else lambda array, what: _bytes_of(array, what, numpy.uint8)
        arrays = [take(array, what) for array, what in zip((gate, up, down), MATRICES)]
        packed = 2 if weight_format == "mxfp4" else 1
        shape = arrays[0].shape[:2] + tuple(packed * n for n in arrays[0].shape[2:])
        expected = [(*shape[:2], *(n // packed for n in shape[2:]))] * 2 + [
            (*shape[:1], *shape[2:], *(n // packed for n in shape[1:2]))]
        if len(shape) != 3 or [array.shape for array in arrays] != expected:
            columns = "" if packed == 1 else " / 2"
            raise ValueError("gate, up and down are " + ", ".join(str(a.shape) for a in arrays) +
                             f", expected [E, H, H'{columns}] twice and [E, H', H{columns}]")
        arrays += self._scales(scales, weight_format, shape)
        pointers = [array.ctypes.data for array in arrays]
        weights = WeightsStruct(ctypes.sizeof(WeightsStruct), *shape, *pointers[:3], kind,
                                *pointers[3:])
        call("perigee_load_weights", self.handle, buffer.encode(), layer, weights_version,
             ctypes.byref(weights))

    @staticmethod
    def _scales(scales, weight_format, shape):
        if scales is None:
            return []
        if weight_format == "bf16":
            raise ValueError("bf16 weights have no scales")
        blocks, dtype = WEIGHT_SCALE_BLOCKS[weight_format], WEIGHT_SCALE_TYPES[weight_format]
        experts, rows, columns = shape
        found = []
        for array, what, sizes in zip(scales, MATRICES,
                                      ((rows, columns), (rows, columns), (columns, rows)),
                                      strict=True):
            array = _bytes_of(array, f"scales of {what}", dtype)
            wanted = (experts, *(-(-size // block) for size, block in zip(sizes, blocks)))
            if array.shape != wanted:
                raise ValueError(f"scales of {what} are {array.shape}, expected {wanted}")
            found.append(array)
        return found
