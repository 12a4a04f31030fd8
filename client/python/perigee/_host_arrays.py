"""What perigee.Buffer does with arrays where the worker's memory is the host's: they are NumPy's."""

import ctypes

import numpy

from perigee.bfloat16 import bits_of


class HostArrays:
    """A part of Buffer. DeviceBuffer does all of it in another way."""

    def _array_of(self, field, shape, dtype, writable=True):
        del dtype  # the pointer's
        return self._attachment.array(field, shape, writable)

    def _gradients_at(self, pointer, shape):
        return self._attachment.array_at(pointer, shape, writable=True)

    def _shared_at(self, pointer, shape, dtype, writable):
        del dtype  # the pointer's
        return self._attachment.array_at(pointer, shape, writable)

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
