"""Operations that are handed to the worker together."""

import contextlib

from perigee._library import PerigeeError, call


class Programs:
    """A part of Buffer."""

    @contextlib.contextmanager
    def program(self):
        """The operations called within are handed to the worker at once when the block ends, as those
        of a step: all of them, or nothing where it raises. They run in their order, each as if it had
        been called alone; a failed one does not hold up those behind it. Every call has
        async_finish=True, and passes on with zero_copy and as plans what it leaves: a call that would
        have to wait for one of the block is a ValueError. Events and arrays are good when the block has
        ended. At most 48 operations; on the GPU all on one stream."""
        self._check_alive()
        if self._program is not None:
            raise ValueError("a program has begun already")
        self._tell_released()
        self._call("perigee_begin_program")
        self._program = []
        try:
            yield
            self._call("perigee_submit_program")
        except BaseException:
            self._drop_program()
            raise
        for event in self._program:
            event.kept = False
        self._program = None

    def _drop_program(self):
        self._call("perigee_drop_program")
        dropped, self._program = self._program, None
        for event in dropped:
            event.drop(PerigeeError("CANCELLED", "its program was not handed over", "", "",
                                    self.generation, 0, self.rank, -1, -1, -1, []))
            self._under_way.remove(event)

    def _call(self, name):
        call(name, self._attachment.handle)
