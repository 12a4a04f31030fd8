"""A connection to a coordinator."""

import ctypes

from perigee._library import (LIBRARY, NAME_BYTES, TOKEN_BYTES, ShapeStruct, WeightsStruct,
                              call)
from perigee.bfloat16 import bits_of


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
                      gradients=False, buffer_id=""):
        """The name of a new buffer of the group, once it is ACTIVE. B: E / R unless given;
        intermediate and layers: H' and how many layers of weights are kept, none unless given. gradients: whether gradients of
        these are kept too, in float32, which Buffer.reduce_grad brings home."""
        shape = ShapeStruct(
            struct_bytes=ctypes.sizeof(ShapeStruct), tokens=S, hidden=H, topk=K, experts=E,
            slots=-1 if B is None else B, token_padding=token_padding, intermediate=intermediate,
            layers=layers, gradients=int(gradients))
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

    def load_weights(self, buffer, layer, weights_version, gate, up, down):
        """Gives every rank its home experts of one layer. gate, up: [E, H, H'], down: [E, H', H],
        bf16 bits. weights_version: not 0; operations name it."""
        arrays = [bits_of(array, what) for array, what in ((gate, "gate"), (up, "up"),
                                                           (down, "down"))]
        shape = arrays[0].shape
        if len(shape) != 3 or arrays[1].shape != shape or arrays[2].shape != (shape[0], shape[2],
                                                                              shape[1]):
            raise ValueError("gate, up and down are " + ", ".join(str(a.shape) for a in arrays) +
                             ", expected [E, H, H'] twice and [E, H', H]")
        weights = WeightsStruct(ctypes.sizeof(WeightsStruct), *shape,
                                *(array.ctypes.data for array in arrays))
        call("perigee_load_weights", self.handle, buffer.encode(), layer, weights_version,
             ctypes.byref(weights))
