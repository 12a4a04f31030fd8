"""The attachment of a worker on a GPU, and torch, for tests of perigee.DeviceBuffer: device memory is this
process's, and streams do at once what they are given."""

import contextlib
import ctypes
import types
import unittest
from unittest import mock

import numpy

import perigee
from perigee import buffer as buffer_module
from perigee import device_buffer
from perigee import program as program_module
from perigee._library import ANY_SLOT, MEMORY_CUDA, MemoryStruct, PerigeeError, SlotStruct

S, H, K, E, B, R, NVS = 4, 8, 2, 4, 5, 1, 12
SLOTS = 2
PLAN = {"dst": S * K, "cu_seqlens": E + B, "zero_fill_ranges": 2 * (E + B),
        "experts_to_copy": R * B, "load": R, "home_load": R}


class Array:
    """On the fake device."""

    def __init__(self, values):
        self.values = numpy.ascontiguousarray(values)
        typestr = {"uint16": "<u2", "float32": "<f4", "int32": "<i4",
                   "uint8": "|u1"}[str(self.values.dtype)]
        self.__cuda_array_interface__ = {"shape": self.values.shape, "typestr": typestr,
                                         "data": (self.values.ctypes.data, False), "version": 3}


class FakeAttachment:
    """One rank whose commands end when the test says so; `log` has what was asked for, in order."""

    def __init__(self, cluster, name, rank):
        del cluster, name, rank
        self.handle, self.log, self.ended, self.failures = "handle", [], 0, {}
        self.commands = 0
        self.left, self.on_leave = False, lambda: None
        self.arrays = {
            "input_tokens": numpy.zeros((S, H), numpy.uint16),
            "input_routes": numpy.zeros((S, K), numpy.int32),
            "input_route_weights": numpy.zeros((S, K), numpy.float32),
            "output_tokens": numpy.full((S, H), 5, numpy.uint16),
            "output_route_weights": numpy.full((S, K), 6, numpy.float32),
            "shard_rows": numpy.full((NVS, H), 7, numpy.uint16),
            "shard_route_weights": numpy.full((NVS,), 8, numpy.float32)}
        self.sums = [[numpy.full((count,) + shape, count, numpy.float32)
                      for shape in ((H, 3), (H, 3), (3, H))] for count in (E // R, B)]
        region = numpy.arange(sum(PLAN.values()), dtype=numpy.int32)
        for field, count in PLAN.items():
            self.arrays[f"plan_{field}"], region = region[:count], region[count:]
        self.slot_arrays = [(numpy.full((NVS, H), index, numpy.uint16),
                             numpy.full((NVS,), index, numpy.float32)) for index in range(SLOTS)]
        self.turn, self.taken = 0, {}
        self.memory = MemoryStruct(kind=MEMORY_CUDA, device=0, device_uuid=b"GPU-x", tokens=S,
                                   hidden=H, topk=K, experts=E, slots=B, ranks=R, rows=NVS)

    def address(self, field):
        return self.arrays[field].ctypes.data

    def name_of(self, address):
        for name, array in self.arrays.items():
            if array.ctypes.data <= address < array.ctypes.data + max(1, array.nbytes):
                return name
        return "caller's"

    def submit(self, name, *arguments):
        self.log.append(name.removeprefix("perigee_"))
        if name.endswith("_into_slot"):
            self._take_slot(arguments[3], arguments[4]._obj)
        elif name == "perigee_release_slot_behind":
            self.log[-1] += f" {arguments[0]}: slot {arguments[1]._obj.index}"
        self.commands += 1
        return self.commands - 1

    def _take_slot(self, wanted, slot):
        assert wanted in (ANY_SLOT, self.turn), wanted
        slot.identity = 100 + self.commands
        self.taken[self.commands] = SlotStruct(slot.identity, self.turn)
        self.turn = (self.turn + 1) % SLOTS

    def taken_slot(self, command):
        assert command < self.ended
        return self.taken[command]

    def output_slot(self, index):
        rows, weights = self.slot_arrays[index]
        return (SLOTS, rows.ctypes.data_as(ctypes.POINTER(ctypes.c_uint16)),
                weights.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))

    def wait(self, command, timeout):
        if command >= self.ended:
            if timeout > 0:
                self.ended = command + 1
            else:
                raise PerigeeError("DEADLINE_EXCEEDED", "", "UNDER_WAY")
        if command in self.failures:
            raise self.failures[command]
        return 1e-6

    def gradients(self, layer):
        self.log.append(f"gradients of {layer}")
        return tuple(tuple((array.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), array.shape)
                           for array in arrays) for arrays in self.sums)

    def source(self, needed):
        self.log.append(f"source for {needed}")
        self.owned = [numpy.full((S, H), 9, numpy.uint16), numpy.full((S, K), 4, numpy.float32)]
        return ("load, store", *(array.ctypes.data_as(ctypes.POINTER(kind)) for array, kind in
                                 zip(self.owned, (ctypes.c_uint16, ctypes.c_float))))

    def slots(self):
        self.packed = [numpy.full(shape, 3, numpy.uint8) for shape in ((B, H, 2), (B, H, 2), (B, 4, H))]
        return [(array.ctypes.data, array.shape, "uint8") for array in self.packed], None

    def peer_rows(self, rank):
        raise AssertionError(f"there is no rank {rank}")

    def leave(self):
        self.on_leave()
        self.left = True


class FakeTensor:
    """Of torch, on the fake device; `streams` are those that record_stream has told it of."""

    is_cuda, device = True, types.SimpleNamespace(index=0)

    def __init__(self, values, dtype, streams):
        self.values, self.dtype, self.streams, self.shape = values, dtype, streams, values.shape

    def is_contiguous(self):
        return True

    def data_ptr(self):
        return self.values.ctypes.data

    def record_stream(self, stream):
        self.streams.append(stream)

    def view(self, to):
        if isinstance(to, tuple):
            return FakeTensor(self.values.reshape(to), self.dtype, self.streams)
        return FakeTensor(self.values.view(FakeTorch.DTYPES[to]), to, self.streams)

    def __getitem__(self, index):
        return FakeTensor(self.values[index], self.dtype, self.streams)


class FakeTorch:
    """As much of torch as DeviceBuffer uses; what is not made is where it was."""

    DTYPES = {"torch.bfloat16": numpy.uint16, "torch.float32": numpy.float32,
              "torch.int32": numpy.int32, "torch.uint8": numpy.uint8}
    Tensor = FakeTensor
    bfloat16, float32, int32, uint8 = DTYPES
    wanted_stream = None  # the only one that memory may be allocated on
    allocates_on = None  # the stream that empty() is called on

    @staticmethod
    @contextlib.contextmanager
    def on_stream(stream):
        before, FakeTorch.allocates_on = FakeTorch.allocates_on, stream
        yield
        FakeTorch.allocates_on = before

    cuda = types.SimpleNamespace(
        ExternalStream=lambda stream, device: stream, default_stream=lambda device: "default",
        current_stream=lambda device: types.SimpleNamespace(cuda_stream=8), stream=on_stream)

    @staticmethod
    def empty(shape, dtype, device):
        assert device == "cuda:0"
        if FakeTorch.wanted_stream is not None:
            assert FakeTorch.allocates_on == FakeTorch.wanted_stream, FakeTorch.allocates_on
        return FakeTensor(numpy.full(shape, 99, FakeTorch.DTYPES[dtype]), dtype, [])


class DeviceTest(unittest.TestCase):
    """With a DeviceBuffer whose attachment is a fake one."""

    def setUp(self):
        self.allocated = []
        for target, name, fake in ((buffer_module, "Attachment", FakeAttachment),
                                   (device_buffer, "call", self.call),
                                   (program_module, "call", self.call),
                                   (device_buffer, "loaded_torch", lambda: None)):
            patch = mock.patch.object(target, name, fake)
            patch.start()
            self.addCleanup(patch.stop)
        self.buffer = perigee.Buffer(None, "b", 0)
        self.attachment = self.buffer._attachment
        self.plans = []
        self.assertIsInstance(self.buffer, perigee.DeviceBuffer)
        self.addCleanup(self.buffer.destroy)

    def call(self, name, handle, *arguments):
        self.assertEqual(handle, "handle")
        log = self.attachment.log
        if name == "perigee_copy":
            stream, to, source, nbytes = arguments
            log.append(f"{self.attachment.name_of(source)} to {self.attachment.name_of(to)} on "
                       f"{stream}")
            ctypes.memmove(to, source, nbytes)
        elif name == "perigee_follow_stream":
            log.append(f"follow {arguments[0]}")
        elif name == "perigee_hold_stream":
            log.append(f"{arguments[0]} waits for {arguments[1]}")
        elif name.endswith("_program"):
            log.append(name.removeprefix("perigee_"))
        elif name == "perigee_mark_stream":
            log.append(f"mark on {arguments[0]}")
        elif name == "perigee_hold_for_mark":
            log.append(f"{arguments[0]} waits for the mark")
        elif name == "perigee_capture_slot_read":
            log.append(f"read of {arguments[1]} captured on {arguments[0]}")
        elif name == "perigee_stream_done":
            arguments[1]._obj.value = 1
        elif name == "perigee_allocate":
            self.allocated.append(ctypes.create_string_buffer(arguments[0]))
            arguments[1]._obj.value = ctypes.addressof(self.allocated[-1])
        else:
            self.fail(name)

    def take_log(self):
        log, self.attachment.log = self.attachment.log, []
        return log

    def inputs(self, count=3):
        return (Array(numpy.full((count, H), 3, numpy.uint16)),
                Array(numpy.full((count, K), 0.5, numpy.float32)),
                Array(numpy.ones((count, K), numpy.int32)))

    @staticmethod
    def values(array):
        kind = {"bfloat16": ctypes.c_uint16, "float32": ctypes.c_float, "int32": ctypes.c_int32}
        count = numpy.prod(array.shape, dtype=int)
        return list((kind[array.dtype] * count).from_address(array.address))
