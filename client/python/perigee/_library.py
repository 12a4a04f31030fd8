"""libperigee.so through ctypes: the structs and functions of client/lib/perigee.h, and its errors."""

import ctypes
import os
import pathlib
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_int32, c_int64, c_uint16, c_uint32
from ctypes import c_float, c_uint64, c_void_p

API_VERSION = 8
NAME_BYTES = 256
TOKEN_BYTES = 96

OWN_WEIGHTS = 2

CODE_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED")


class ErrorStruct(ctypes.Structure):
    """perigee_error."""
    _fields_ = [
        ("struct_bytes", c_uint32), ("code", c_int32), ("generation", c_uint64),
        ("sequence", c_uint64), ("lost_ranks", c_uint64 * 2), ("rank", c_int32),
        ("awaited_rank", c_int32), ("token", c_int32), ("k", c_int32), ("operation", c_char * 24),
        ("reason", c_char * 24), ("message", c_char * 1024)
    ]


class ShapeStruct(ctypes.Structure):
    """perigee_buffer_shape."""
    _fields_ = [("struct_bytes", c_uint32)] + [(name, c_int32) for name in (
        "tokens", "hidden", "topk", "experts", "slots", "token_padding", "intermediate", "layers",
        "gradients", "weight_format", "weight_scales", "refetch", "peer_store", "source_storage",
        "dispatch_output_slots", "expert_output_slots", "operation_timeout_ms", "warmup_timeout_ms",
        "sms", "local_sms", "no_programmatic_launch", "high_priority_stream")]


class WeightsStruct(ctypes.Structure):
    """perigee_weights."""
    _fields_ = [("struct_bytes", c_uint32), ("experts", c_int32), ("hidden", c_int32),
                ("intermediate", c_int32), ("gate", c_void_p), ("up", c_void_p),
                ("down", c_void_p), ("format", c_int32), ("gate_scales", c_void_p),
                ("up_scales", c_void_p), ("down_scales", c_void_p)]


WEIGHT_FORMATS = ("bf16", "8bit", "mxfp4")  # PERIGEE_WEIGHTS_...
WEIGHT_SCALE_BLOCKS = {"8bit": (128, 128), "mxfp4": (1, 32)}  # rows and columns that one is for
WEIGHT_SCALE_TYPES = {"8bit": "float32", "mxfp4": "uint8"}
MATRICES = ("gate", "up", "down")


class MemoryStruct(ctypes.Structure):
    """perigee_memory."""
    _fields_ = [("struct_bytes", c_uint32)] + [(name, c_int32) for name in (
        "rank", "ranks", "tokens", "hidden", "topk", "experts", "slots", "token_padding",
        "intermediate", "layers")] + [
            ("generation", c_uint64), ("rows", c_int64),
            ("input_tokens", POINTER(c_uint16)), ("input_routes", POINTER(c_int32)),
            ("input_route_weights", POINTER(c_float)), ("output_tokens", POINTER(c_uint16)),
            ("output_route_weights", POINTER(c_float)), ("shard_rows", POINTER(c_uint16)),
            ("shard_route_weights", POINTER(c_float)), ("plan_dst", POINTER(c_int32)),
            ("plan_cu_seqlens", POINTER(c_int32)), ("plan_zero_fill_ranges", POINTER(c_int32)),
            ("plan_experts_to_copy", POINTER(c_int32)), ("plan_load", POINTER(c_int32)),
            ("plan_home_load", POINTER(c_int32)), ("kind", c_int32), ("device", c_int32),
            ("device_uuid", c_char * 48)
        ]


MEMORY_CUDA = 1  # PERIGEE_MEMORY_CUDA


class GradientsStruct(ctypes.Structure):
    """perigee_gradients."""
    _fields_ = [("struct_bytes", c_uint32), ("home_experts", c_int32)] + [
        (name, POINTER(c_float)) for name in ("home_gate", "home_up", "home_down", "slot_gate",
                                              "slot_up", "slot_down")]


class SlotsStruct(ctypes.Structure):
    """perigee_slots."""
    _fields_ = [("struct_bytes", c_uint32), ("slots", c_int32), ("format", c_int32),
                ("scales", c_int32)] + [(name, c_void_p) for name in (
                    "gate", "up", "down", "gate_scales", "up_scales", "down_scales")]


class SourceStruct(ctypes.Structure):
    """perigee_source."""
    _fields_ = [("struct_bytes", c_uint32), ("access", c_char * 40), ("tokens", POINTER(c_uint16)),
                ("route_weights", POINTER(c_float))]


ANY_SLOT = -1
DISPATCH_OUTPUT = 0  # PERIGEE_DISPATCH_OUTPUT
EXPERT_OUTPUT = 1


class SlotStruct(ctypes.Structure):
    """perigee_slot."""
    _fields_ = [("identity", c_uint64), ("index", c_int32), ("reserved", c_int32)]


class OutputSlotStruct(ctypes.Structure):
    """perigee_output_slot."""
    _fields_ = [("struct_bytes", c_uint32), ("slots", c_int32), ("rows", POINTER(c_uint16)),
                ("route_weights", POINTER(c_float))]


# What each function takes before its perigee_error*.
_NEW_COMMAND = POINTER(c_uint64)
_SIGNATURES = {
    "perigee_connect": [c_char_p, POINTER(c_void_p)],
    "perigee_create_group": [c_void_p, c_char_p, c_int32, c_char_p, c_char_p],
    "perigee_create_buffer": [c_void_p, c_char_p, c_char_p, POINTER(ShapeStruct), c_char_p],
    "perigee_delete_group": [c_void_p, c_char_p],
    "perigee_delete_buffer": [c_void_p, c_char_p],
    "perigee_load_weights": [c_void_p, c_char_p, c_int32, c_uint64, POINTER(WeightsStruct)],
    "perigee_issue_tokens": [c_void_p, c_char_p, c_int32, c_int32, c_void_p],
    "perigee_attach": [c_void_p, c_char_p, c_int32, POINTER(c_void_p)],
    "perigee_leave": [c_void_p],
    "perigee_get_memory": [c_void_p, POINTER(MemoryStruct)],
    "perigee_get_gradients": [c_void_p, c_int32, POINTER(GradientsStruct)],
    "perigee_get_slots": [c_void_p, POINTER(SlotsStruct)],
    "perigee_peer_rows": [c_void_p, c_int32, POINTER(POINTER(c_uint16))],
    "perigee_get_source": [c_void_p, c_char_p, POINTER(SourceStruct)],
    "perigee_empty": [c_void_p, _NEW_COMMAND],
    "perigee_dispatch": [c_void_p, c_uint64, c_int32, c_int32, _NEW_COMMAND],
    "perigee_dispatch_with_plan": [c_void_p, c_uint64, c_int32, c_int32, _NEW_COMMAND],
    "perigee_prefetch_weights": [c_void_p, c_uint64, c_int32, c_uint64, _NEW_COMMAND],
    "perigee_run_experts": [c_void_p, c_uint64, c_int32, c_uint64, c_int32, _NEW_COMMAND],
    "perigee_combine": [c_void_p, c_uint64, c_int32, _NEW_COMMAND],
    "perigee_reduce_gradients": [c_void_p, c_uint64, c_int32, _NEW_COMMAND],
    "perigee_barrier": [c_void_p, _NEW_COMMAND],
    "perigee_release_plan": [c_void_p, c_uint64, _NEW_COMMAND],
    "perigee_clone_plan": [c_void_p, c_uint64, c_uint64, _NEW_COMMAND],
    "perigee_prepare_dispatch": [c_void_p, c_uint64, c_int32, _NEW_COMMAND],
    "perigee_prepare_publication": [c_void_p, c_uint64, c_int32, c_char_p, _NEW_COMMAND],
    "perigee_store_rows": [c_void_p, c_uint64, _NEW_COMMAND],
    "perigee_publish": [c_void_p, c_uint64, _NEW_COMMAND],
    "perigee_begin_program": [c_void_p],
    "perigee_submit_program": [c_void_p],
    "perigee_drop_program": [c_void_p],
    "perigee_prepare_source": [c_void_p, c_uint64, c_int32, c_int32, c_int32, _NEW_COMMAND],
    "perigee_materialise": [c_void_p, c_uint64, _NEW_COMMAND],
    "perigee_get_output_slot": [c_void_p, c_int32, POINTER(OutputSlotStruct)],
    "perigee_dispatch_into_slot": [c_void_p, c_uint64, c_int32, c_int32, c_int32,
                                   POINTER(SlotStruct), _NEW_COMMAND],
    "perigee_dispatch_with_plan_into_slot": [c_void_p, c_uint64, c_int32, c_int32, c_int32,
                                             POINTER(SlotStruct), _NEW_COMMAND],
    "perigee_run_experts_of_slot": [c_void_p, c_uint64, c_int32, c_uint64, c_int32,
                                    POINTER(SlotStruct), c_int32, _NEW_COMMAND],
    "perigee_combine_slot": [c_void_p, c_uint64, POINTER(SlotStruct), _NEW_COMMAND],
    "perigee_combine_own_rows": [c_void_p, c_uint64, c_int32, _NEW_COMMAND],
    "perigee_release_slot": [c_void_p, c_int32, POINTER(SlotStruct), _NEW_COMMAND],
    "perigee_release_slot_behind": [c_void_p, c_void_p, POINTER(SlotStruct), _NEW_COMMAND],
    "perigee_capture_slot_read": [c_void_p, c_void_p, c_int32],
    "perigee_release_slot_replayed": [c_void_p, POINTER(SlotStruct), _NEW_COMMAND],
    "perigee_taken_slot": [c_void_p, c_uint64, POINTER(SlotStruct)],
    "perigee_follow_stream": [c_void_p, c_void_p],
    "perigee_hold_stream": [c_void_p, c_void_p, c_uint64],
    "perigee_mark_stream": [c_void_p, c_void_p],
    "perigee_hold_for_mark": [c_void_p, c_void_p],
    "perigee_copy": [c_void_p, c_void_p, c_void_p, c_void_p, c_uint64],
    "perigee_stream_done": [c_void_p, c_void_p, POINTER(c_int32)],
    "perigee_allocate": [c_void_p, c_uint64, POINTER(c_void_p)],
    "perigee_wait": [c_void_p, c_uint64, c_int64, POINTER(c_int64)],
}
# These return nothing and cannot fail.
_ENDINGS = ("perigee_disconnect", "perigee_detach", "perigee_free")


class PerigeeError(RuntimeError):
    """A call that has failed. Ranks are -1, numbers 0 and words "" where none is meant; code_name is
    the gRPC code's."""

    FIELDS = ("code_name", "message", "reason", "operation", "generation", "sequence", "rank",
              "awaited_rank", "token", "k", "lost_ranks")

    def __init__(self, *values):
        super().__init__(*values)
        for field, value in zip(self.FIELDS, values):
            setattr(self, field, value)

    def __str__(self):
        return f"{self.code_name}: {self.message}"


def _error_of(error):
    lost_ranks = [rank for rank in range(128) if error.lost_ranks[rank // 64] >> rank % 64 & 1]
    texts = (text.decode(errors="replace")
             for text in (error.message, error.reason, error.operation))
    code_name = CODE_NAMES[error.code] if error.code < len(CODE_NAMES) else str(error.code)
    return PerigeeError(code_name, *texts, error.generation, error.sequence, error.rank,
                        error.awaited_rank, error.token, error.k, lost_ranks)


def _candidates():
    if "PERIGEE_LIBRARY" in os.environ:
        yield os.environ["PERIGEE_LIBRARY"]
        return
    here = pathlib.Path(__file__).absolute().parent
    for folder in (here, here.parent.parent / "lib"):
        if (folder / "libperigee.so").exists():
            yield str(folder / "libperigee.so")
    yield "libperigee.so"


def _load():
    library = ctypes.CDLL(next(_candidates()))
    library.perigee_api_version.restype = c_uint32
    if library.perigee_api_version() < API_VERSION:
        raise ImportError(f"{library._name} has version {library.perigee_api_version()} of the C "
                          f"interface, expected at least {API_VERSION}")
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments + [POINTER(ErrorStruct)]
        function.restype = c_int
    for name in _ENDINGS:
        getattr(library, name).argtypes = [c_void_p]
        getattr(library, name).restype = None
    return library


LIBRARY = _load()


def call(name, *arguments):
    """Calls the function; PerigeeError where it fails."""
    error = ErrorStruct(struct_bytes=ctypes.sizeof(ErrorStruct))
    if getattr(LIBRARY, name)(*arguments, byref(error)) != 0:
        raise _error_of(error)
