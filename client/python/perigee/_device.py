"""Arrays on a GPU: what other packages take of this one (__cuda_array_interface__, DLPack), and what
this one takes of them. Plain ctypes."""

import ctypes
import math
import sys
from typing import Any, NamedTuple

_BYTES = {"bfloat16": 2, "float32": 4, "int32": 4, "uint8": 1}
# The interface has no bfloat16: its 16 bits go as an unsigned number.
_TYPESTR = {"bfloat16": "<u2", "float32": "<f4", "int32": "<i4", "uint8": "|u1"}
_OF_TYPESTR = {"<u2": "bfloat16", "<V2": "bfloat16", "<f4": "float32", "<i4": "int32",
               "|u1": "uint8"}
# DLPack's type code and bits.
_DLPACK = {"bfloat16": (4, 16), "float32": (2, 32), "int32": (0, 32), "uint8": (1, 8)}
_OF_DLPACK = {(4, 16): "bfloat16", (1, 16): "bfloat16", (2, 32): "float32", (0, 32): "int32",
              (1, 8): "uint8"}
_DLPACK_CUDA = 2


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER)]


_NAME = b"dltensor"
_CAPSULE_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, _CAPSULE_DESTRUCTOR]
# Of a capsule by address, as its destructor has it, and of one by reference.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
_lent = {}  # what consumers of capsules still have, by the address of its _DLManagedTensor


@_DELETER
def _forget(managed):
    _lent.pop(managed, None)


@_CAPSULE_DESTRUCTOR
def _drop_capsule(capsule):
    # Renamed by a consumer, which then calls the deleter.
    if _is_valid(capsule, _NAME):
        _forget(_pointer_of(capsule, _NAME))


class DeviceArray:
    """Contiguous memory of a GPU; not to be indexed, but for what takes __cuda_array_interface__ or
    DLPack (torch.from_dlpack, cupy.asarray). dtype: "bfloat16", "float32" or "int32"; the former's
    interface is of "<u2", the bits of each number, for it has no such type; DLPack has. Its memory
    lives as long as this or anything made of it."""

    def __init__(self, address, shape, dtype, device, owner):
        self.address, self.shape, self.dtype, self.device = address, tuple(shape), dtype, device
        self._owner = owner

    @property
    def nbytes(self):
        return math.prod(self.shape) * _BYTES[self.dtype]

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": _TYPESTR[self.dtype], "strides": None,
                "data": (self.address, False), "version": 3}

    def __dlpack_device__(self):
        return _DLPACK_CUDA, self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """stream and the rest are taken and not used: the caller has ordered its streams."""
        del stream, max_version
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("this array is not copied, nor brought to another device")
        managed = _DLManagedTensor()
        shape = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        tensor = managed.tensor
        tensor.data, tensor.device_type, tensor.device_id = (self.address, _DLPACK_CUDA,
                                                             self.device)
        tensor.ndim, tensor.shape, tensor.lanes = len(self.shape), shape, 1
        tensor.code, tensor.bits = _DLPACK[self.dtype]
        managed.deleter = _forget
        address = ctypes.addressof(managed)
        _lent[address] = (managed, shape, self)
        return _new_capsule(address, _NAME, _drop_capsule)


class Source(NamedTuple):
    """What an array of whoever else is, and whatever keeps it alive."""
    address: int
    shape: tuple
    dtype: str
    device: int
    keep: Any

    def part(self, first, count):
        """Some of its rows."""
        row = _BYTES[self.dtype] * math.prod(self.shape[1:])
        return self._replace(address=self.address + first * row, shape=(count, *self.shape[1:]))


def _of_interface(array):
    interface = array.__cuda_array_interface__
    shape, typestr = tuple(interface["shape"]), interface["typestr"]
    strides = interface.get("strides")
    dtype = _OF_TYPESTR.get(typestr, typestr)
    if strides is not None and tuple(strides) != _strides(shape, _BYTES.get(dtype, 1)):
        raise ValueError("is not contiguous")
    device = array.device if isinstance(array, DeviceArray) else None
    return Source(interface["data"][0], shape, dtype, device, array)


def _strides(shape, item):
    return tuple(item * math.prod(shape[i + 1:]) for i in range(len(shape)))


def _of_torch(tensor):
    dtype = str(tensor.dtype).removeprefix("torch.")
    if not tensor.is_cuda:
        raise TypeError(f"is on {tensor.device}")
    if not tensor.is_contiguous():
        raise ValueError("is not contiguous")
    if dtype in ("int16", "uint16"):
        dtype = "bfloat16"  # its bits
    return Source(tensor.data_ptr(), tuple(tensor.shape), dtype, tensor.device.index, tensor)


def _of_dlpack(array):
    device_type, device = array.__dlpack_device__()
    if device_type != _DLPACK_CUDA:
        raise TypeError(f"is on a device of DLPack's type {int(device_type)}, not on a GPU of CUDA")
    capsule = array.__dlpack__()
    managed = _DLManagedTensor.from_address(_pointer_of(id(capsule), _NAME))
    tensor = managed.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides and tuple(tensor.strides[i]
                                for i in range(tensor.ndim)) != _strides(shape, 1):
        raise ValueError("is not contiguous")
    kind = (tensor.code, tensor.bits)
    return Source((tensor.data or 0) + tensor.byte_offset, shape,
                  _OF_DLPACK.get(kind, f"DLPack's {kind}"), device, (array, capsule))


def source_of(array, what, device):
    """TypeError or ValueError, naming `what`, where it is no contiguous array on that GPU."""
    torch = loaded_torch()
    try:
        if torch is not None and isinstance(array, torch.Tensor):
            source = _of_torch(array)
        elif hasattr(array, "__cuda_array_interface__"):
            source = _of_interface(array)
        elif hasattr(array, "__dlpack_device__"):
            source = _of_dlpack(array)
        else:
            raise TypeError(f"is a {type(array).__name__}, with neither __cuda_array_interface__ "
                            "nor __dlpack__")
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what} {error}") from None
    if source.device not in (None, device):
        raise ValueError(f"{what} is on device {source.device}, the buffer on device {device}")
    return source


def loaded_torch():
    """torch, where this process has imported it and it has CUDA."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "cuda") else None


def torch_stream(handle, device):
    """torch's object for a stream; its class of others' streams makes a new one of the handle 0."""
    cuda = loaded_torch().cuda
    return cuda.ExternalStream(handle, device=device) if handle else cuda.default_stream(device)


def stream_of(stream, device):
    """The handle of a stream: of torch, another package's (cuda_stream, ptr), or a number. None:
    torch's current one where torch is loaded, else the legacy default stream."""
    if stream is None:
        torch = loaded_torch()
        return torch.cuda.current_stream(device).cuda_stream if torch is not None else 0
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)
