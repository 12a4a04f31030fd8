"""What an operation that was not waited for leaves behind."""

from perigee._library import PerigeeError

UNDER_WAY = "UNDER_WAY"  # perigee_wait


class Event:
    """The end of one operation, and of those handed over before it on the same buffer. An array that
    the operation returned holds its values from wait() on. Not thread-safe."""

    ONE_WAIT_IS_ENOUGH = True

    def __init__(self, attachment, command, timeout, uses=frozenset(), finish=None,
                 quiet=False, await_earlier=None):
        self._attachment = attachment
        self._command = command
        self._timeout = timeout
        self._finish = finish
        self._error = None
        self._quiet = quiet  # a failure is nobody's concern
        # A weak reference to what waits for the operations before this one: their arrays are to hold
        # their values, too.
        self._await_earlier = await_earlier
        self.kept = False  # its program has not been handed over
        self.on_drop = None  # called where that will not be
        self._dropped = False
        self.over = False  # whether it is known to have ended, well or not
        self.told = False  # wait() has raised its failure
        self.uses = uses  # memory that nobody may write before this event is over
        self.duration = None  # of the operation on the worker, in seconds, once it has ended well

    def wait(self):
        """Blocks until the operation has ended; PerigeeError where it failed, every time, or where one
        before it has and nobody has been told."""
        self.check_handed_over()
        await_earlier = self._await_earlier and self._await_earlier()
        if await_earlier:
            await_earlier(self)
        if not self.over:
            self._await(self._timeout)
        if self._error is not None:
            self.told = True
            raise self._error

    @property
    def command(self):
        return self._command

    @property
    def failed(self):
        """Of one that is over."""
        return self._error is not None

    def done(self):
        """Whether it has ended, well or not; never blocks."""
        if not self.over and not self.kept:
            try:
                self._await(0)
            except PerigeeError as error:
                if error.reason != UNDER_WAY:
                    raise
        return self.over

    def check_handed_over(self):
        """ValueError: it is one of a program that is being put together; what it was dropped with."""
        self.check_not_dropped()
        if self.kept:
            raise ValueError("an operation of a program is wanted to have ended before the program is "
                             "handed over: within program() calls have async_finish=True, and pass on "
                             "with zero_copy and plans what they leave")

    def check_not_dropped(self):
        """What it was dropped with."""
        if self._dropped:
            self.told = True
            raise self._error

    def drop(self, error):
        """Its program was not handed over: nobody may wait for its number, which is given again."""
        self.kept, self.over, self._dropped = False, True, True
        self._error, self._finish = error, None
        if self.on_drop is not None:
            self.on_drop()

    def _await(self, timeout):
        try:
            self.duration = self._attachment.wait(self._command, timeout)
            if self._finish is not None:
                self._finish()
        except PerigeeError as error:
            if error.reason == UNDER_WAY:
                raise
            self._error = None if self._quiet else error
        self.over = True
        self._finish = None
