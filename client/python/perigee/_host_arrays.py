"""What perigee.Buffer does with arrays where the worker's memory is the host's: they are NumPy's."""

import ctypes

import numpy

from perigee.bfloat16 import bits_of
from perigee.expert_arrays import stale_weights

_NAMES = {"bfloat16": "uint16, bf16's bits,", "float32": "float32", "uint8": "uint8"}


class HostArrays:
    """A part of Buffer. DeviceBuffer does all of it in another way."""

    def _array_of(self, field, shape, dtype, writable=True):
        del dtype  # the pointer's
        return self._attachment.array(field, shape, writable)

    def _plain_at(self, pointer, shape, dtype, writable):
        """Memory shared with the worker, not as it is shown to callers."""
        del dtype  # the pointer's
        return self._attachment.array_at(pointer, shape, writable)

    def _shared_at(self, pointer, shape, dtype, writable):
        return self._plain_at(pointer, shape, dtype, writable)

    def _constant_at(self, address, shape, dtype):
        element = {"bfloat16": ctypes.c_uint16, "uint8": ctypes.c_uint8, "float32": ctypes.c_float}
        pointer = ctypes.cast(address, ctypes.POINTER(element[dtype]))
        return self._attachment.array_at(pointer, shape, writable=False)

    def _shown(self, view):
        return view

    def _put(self, view, array):
        """Into the first rows of memory shared with the worker."""
        view[:array.shape[0]] = array

    def _get(self, result, view):
        result[:] = view

    def _empty_like(self, view):
        return numpy.empty(view.shape, view.dtype)

    def _empty_plan(self):
        return {name: self._empty_like(array) for name, array in self._plan.items()}

    def _get_plan(self, arrays):
        for name, array in arrays.items():
            array[:] = self._plan[name]

    def _copy_plan(self, arrays):
        return {name: array.copy() for name, array in arrays.items()}

    def _rows_of(self, array, what, least, most):
        rows = bits_of(array, what)
        self._check_rows_shape(rows.shape, what, least, most)
        return rows

    def _shape_of(self, array, what):
        del what
        return numpy.shape(array)

    def _array(self, array, what, dtype, shape):
        if array is None:
            raise ValueError(f"{what} is missing")
        array = numpy.asarray(array)
        if array.dtype != dtype or array.shape != shape:
            raise ValueError(f"{what} is {array.dtype} {list(array.shape)}, expected "
                             f"{dtype} {list(shape)}")
        return array

    @staticmethod
    def _is_view(array, view):
        return (array.__array_interface__["data"][0] == view.__array_interface__["data"][0] and
                array.shape == view.shape and array.strides == view.strides)

    # ---- Arrays of the caller's, used where they are ----

    def _callers(self, array, what, dtype, shapes):
        if not isinstance(array, numpy.ndarray):
            raise TypeError(f"{what} is a {type(array).__name__}, expected a numpy.ndarray, which is "
                            "filled in place")
        if array.dtype != ("uint16" if dtype == "bfloat16" else dtype) or array.shape not in shapes:
            raise ValueError(f"{what} is {array.dtype} {list(array.shape)}, expected "
                             + shapes_in_words(_NAMES[dtype], shapes))
        return array

    @staticmethod
    def _check_writable(array, what):
        if not array.flags.writeable:
            raise ValueError(f"{what} is for reading only, and is to be written")

    @staticmethod
    def _part(array, first, count):
        return array[first:first + count]

    @staticmethod
    def _one_of(array, index):
        return array[index]

    @staticmethod
    def _get_part(part, view):
        part[:] = view

    def _check_brought(self, brought, plan, layer, version):
        """That what the caller has of experts is what has been brought."""
        for slot, expert in enumerate(plan.experts_to_copy[self.rank]):
            for one in brought:
                if expert >= 0 and one.array[expert].tobytes() != one.slots[slot].tobytes():
                    raise stale_weights(
                        f"{one.what}[{expert}] is not what the workers hold of that expert as layer "
                        f"{layer}, weights_version {version}: Cluster.load_weights gives it to them "
                        "under another version", self)


def shapes_in_words(dtype, shapes):
    return f"{dtype} " + " or ".join(str(list(shape)) for shape in dict.fromkeys(map(tuple, shapes)))
