"""Where every route of a dispatch goes."""

import numpy

from perigee._device import DeviceArray, loaded_torch

FIELDS = ("dst", "cu_seqlens", "zero_fill_ranges", "experts_to_copy", "load", "home_load")


class CommPlan:
    """Made by Buffer.dispatch; usable in any number of operations of that buffer. The worker keeps it
    until it is released, which the end of the last reference does as well.

    N, R, E, B, NvS, K: the buffer's. The arrays are int32, this process's own, and those of
    docs/planning.md; a look at one waits for the dispatch, or puts the current stream behind it. tokens: n of the dispatch that made it.
      dst [S*K]                    destination of each route of this rank
      cu_seqlens [E+B]             padded end of each of its groups
      zero_fill_ranges [E+B, 2]    padding of each
      experts_to_copy [R, B]       expert in each slot of each rank, -1: none
      load, home_load [R]          rows that each rank computes, with balancing and without
      remote_stats [2]             remote experts with rows on this rank; slots of any rank that have
                                   experts of this one. On a GPU with torch only
    """

    def __init__(self, buffer, number, tokens):
        self._buffer = buffer
        self.number = number
        self.tokens = tokens
        self._event = None
        self._arrays = None
        self._rank = buffer.rank
        self.N, self.R, self.E = buffer.S * buffer.K, buffer.R, buffer.E
        self.B, self.NvS, self.K = buffer.B, buffer.NvS, buffer.K

    def clone(self):
        """The same plan with arrays of its own, released on its own."""
        return self._buffer.clone_plan(self)

    def release(self):
        """Lets the worker forget it. Idempotent."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.release_plan(self.number)

    def __del__(self):
        if getattr(self, "_buffer", None) is not None:
            self.release()

    def number_for(self, buffer):
        """Its number, where it is a living plan of that buffer; ValueError else."""
        if self._buffer is not buffer:
            raise ValueError("the plan has been released" if self._buffer is None else
                             "the plan is another buffer's")
        return self.number

    def made_by(self, event):
        self._event = event

    def read(self, arrays):
        """Takes the arrays, by name."""
        self._arrays = arrays

    def __getattr__(self, name):
        if name == "remote_stats":
            return self._count_replicas()
        if name not in FIELDS:
            raise AttributeError(name)
        if self._event is not None:
            self._event.wait()
            if self._event.ONE_WAIT_IS_ENOUGH:
                self._event = None
        return self._arrays[name]

    def arrays(self):
        return {name: getattr(self, name) for name in FIELDS}

    def _count_replicas(self):
        """In NumPy's and torch's words alike."""
        ends = self.cu_seqlens
        if isinstance(ends, DeviceArray):
            raise AttributeError("remote_stats, which is counted by torch, and torch is not imported")
        starts = ends * 0
        starts[1:] = ends[:-1]
        filled, own = ends > starts, self.E // self.R
        remote = filled.sum() - filled[own * self._rank:own * (self._rank + 1)].sum()
        used = (self.experts_to_copy // own == self._rank).sum()
        if isinstance(ends, numpy.ndarray):
            return numpy.array([remote, used], numpy.int32)
        return loaded_torch().stack((remote, used)).int()


Plan = CommPlan
