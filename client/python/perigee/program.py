"""Operations that are handed to the worker together."""

import contextlib

from perigee._library import PerigeeError, call

MOST_OPERATIONS = 48


class Programs:
    """A part of Buffer."""

    @contextlib.contextmanager
    def program(self):
        """The operations called within are handed to the worker at once when the block ends, as those
        of a step: all of them, or nothing where it raises. They run in their order. Where one fails,
        those behind it that need what it would have made are refused; on the GPU so are all that are
        launched already (DECLINED). Every call has async_finish=True, and passes on with zero_copy and
        as plans what it leaves: a call that would have to wait for one of the block is a ValueError.
        Events and arrays are good when the block has ended. At most 48 operations; on the GPU all on
        one stream."""
        self._check_alive()
        if self._program is not None:
            raise ValueError("a program has begun already")
        self._tell_released()
        call("perigee_begin_program", self._attachment.handle)
        self._program, self._refused_within = [], False
        try:
            yield
            if self._refused_within:
                raise ValueError("a call within the program was refused: none of it is handed over")
            call("perigee_submit_program", self._attachment.handle)
        except BaseException:
            self._drop_program()
            raise
        for event in self._program:
            event.kept = False
        self._program = None

    def _drop_program(self):
        dropped, self._program = self._program, None
        for event in dropped:
            event.drop(PerigeeError("CANCELLED", "its program was not handed over", "", "",
                                    self.generation, 0, self.rank, -1, -1, -1, []))
            if event in self._under_way:
                self._under_way.remove(event)
        call("perigee_drop_program", self._attachment.handle)

    def _check_room_in_program(self):
        if self._program is not None and len(self._program) >= MOST_OPERATIONS:
            raise ValueError(f"the program has {MOST_OPERATIONS} operations, as many as there can be")

    def _keep(self, event):
        """Of every operation that was called."""
        if self._program is not None:
            event.kept = True
            self._program.append(event)

    def _check_may_wait(self):
        """Of a call that waits for its operation, which has been called."""
        if self._program is not None:
            self._refused_within = True
            raise ValueError("within program() calls have async_finish=True: nothing has ended before the "
                             "program is handed over")
