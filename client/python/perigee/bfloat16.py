"""bfloat16 in NumPy, which has no such type: arrays of uint16 hold the 16 bits of each number."""

import numpy


def to_bfloat16(values):
    """float32 values as bf16 bits, rounded to nearest, ties to even; NaN stays NaN."""
    values = numpy.ascontiguousarray(values, dtype=numpy.float32)
    bits = values.view(numpy.uint32)
    rounded = (bits + (0x7fff + (bits >> 16 & 1))) >> 16
    return numpy.where(numpy.isnan(values), 0x7fc0, rounded).astype(numpy.uint16)


def from_bfloat16(bits):
    """bf16 bits as float32, exactly."""
    return (numpy.asarray(bits, dtype=numpy.uint32) << 16).view(numpy.float32)


def bits_of(array, what):
    """A contiguous uint16 array of the bf16 numbers in `array`: itself, where it is one. Arrays of a
    bfloat16 type of another package are taken by their bits."""
    array = numpy.asarray(array)
    if array.dtype != numpy.uint16:
        if array.dtype.name != "bfloat16":
            raise TypeError(f"{what} is of {array.dtype}, expected bf16 bits in uint16 "
                            "(perigee.to_bfloat16 makes them of float32)")
        array = array.view(numpy.uint16)
    return numpy.ascontiguousarray(array)
