"""The operations of expert parallelism on one rank of a buffer."""

import collections
import contextlib
import itertools
import warnings
import weakref

from perigee._attachment import Attachment
from perigee._host_arrays import HostArrays
from perigee._library import MEMORY_CUDA, PerigeeError
from perigee.event import Event
from perigee.expert_arrays import ExpertArrays
from perigee.output_slots import OutputSlots
from perigee.plan import FIELDS, CommPlan
from perigee.program import MOST_OPERATIONS, Programs
from perigee.publication import DirectPublication
from perigee.rows import RowOperations
from perigee.source import OwnerSource

# Of the 64 commands whose ends the worker keeps.
_MOST_UNDER_WAY = MOST_OPERATIONS


class Buffer(HostArrays, RowOperations, ExpertArrays, OutputSlots, DirectPublication, OwnerSource,
             Programs):
    """Attaches this process to a rank of a buffer whose worker runs on this machine.

    Rows and tokens are bf16, which NumPy has as bits in uint16 (perigee.to_bfloat16). Letters: S
    tokens, H hidden size, K routes of a token, E experts, R ranks, B prefetch slots, NvS rows of the
    shard. Every rank calls the collective operations (dispatch, prefetch_weight, combine, reduce_grad,
    barrier, prepare_dispatch, publish, prepare_source, materialise) in the same order. Operations run in the order of their calls.
    With async_finish=True a call returns before its operation has ended, with an Event; else it returns
    after it, and PerigeeError says what went wrong. Arguments that cannot be are a TypeError or ValueError before anything is started.

    Where the worker's memory is a GPU's, what is made is a DeviceBuffer, which says how its operations
    are ordered with `stream`; on the host there is none, and it is not looked at.

    Not thread-safe.
    """

    _EVENT = Event

    def __new__(cls, cluster, name, rank, **options):
        del options
        attachment = Attachment(cluster, name, rank)
        if attachment.memory.kind == MEMORY_CUDA:
            from perigee.device_buffer import DeviceBuffer
            cls = DeviceBuffer
        buffer = super().__new__(cls)
        buffer._attachment = attachment
        return buffer

    def __init__(self, cluster, name, rank, *, explicitly_destroy=False, timeout=60.0):
        """cluster: may be closed afterwards. timeout: of a wait for an operation, in seconds; the
        worker's own for other ranks are shorter. explicitly_destroy: a buffer that is forgotten is
        warned of, instead of destroyed in silence."""
        self.name = name
        self._leaving = self._destroyed = True  # until there is something to destroy
        self._explicitly_destroy = explicitly_destroy
        self._timeout = timeout
        del cluster, rank  # __new__ has attached
        self._leaving = self._destroyed = False
        self._under_way = collections.deque()
        self._released = collections.deque()  # numbers of plans that nobody has any more
        self._numbers = itertools.count(1)
        self._program = None  # the events of one that has begun
        self._map(self._attachment.memory)

    def _map(self, memory):
        self.rank, self.R, self.generation = memory.rank, memory.ranks, memory.generation
        self.S, self.H, self.K = memory.tokens, memory.hidden, memory.topk
        self.E, self.B, self.NvS = memory.experts, memory.slots, memory.rows
        self.token_padding = memory.token_padding
        array = self._array_of
        self._input = array("input_tokens", (self.S, self.H), "bfloat16")
        self._routes = array("input_routes", (self.S, self.K), "int32")
        self._route_weights = array("input_route_weights", (self.S, self.K), "float32")
        self._output = array("output_tokens", (self.S, self.H), "bfloat16", writable=False)
        self._gathered = array("output_route_weights", (self.S, self.K), "float32", writable=False)
        self._rows = array("shard_rows", (self.NvS, self.H), "bfloat16")
        self._row_weights = array("shard_route_weights", (self.NvS,), "float32")
        # What callers see of it.
        self._rows_view, self._row_weights_view = map(self._shown, (self._rows, self._row_weights))
        groups = self.E + self.B
        shapes = {"dst": (self.S * self.K,), "cu_seqlens": (groups,),
                  "zero_fill_ranges": (groups, 2), "experts_to_copy": (self.R, self.B),
                  "load": (self.R,), "home_load": (self.R,)}
        self._plan = {name: array(f"plan_{name}", shapes[name], "int32", writable=False)
                      for name in FIELDS}

    # ---- Operations ----

    def barrier(self, *, async_finish=False, stream=None):
        """Collective. Waits for every rank."""
        self._begin(stream)
        event = self._submit(set(), None, "perigee_barrier")
        return self._end(event, async_finish, None, event)

    # ---- Plans ----

    def clone_plan(self, plan):
        """CommPlan.clone."""
        if self._program is not None:
            raise ValueError("a plan is copied before or behind program(), not within")
        self._begin(None)
        copy = CommPlan(self, next(self._numbers), plan.tokens)
        copy.read(self._copy_plan(plan.arrays()))
        self._submit(set(), None, "perigee_clone_plan", copy.number, plan.number_for(self)).wait()
        return copy

    def release_plan(self, number):
        """CommPlan.release: from any thread, at any time; told to the worker with the next call."""
        self._released.append(number)

    # ---- Views and life ----

    @property
    def hidden_nvsh_buffer_view(self):
        """[NvS, H] bf16: the shard's rows themselves."""
        self._check_alive()
        return self._rows_view

    @property
    def router_weight_buffer_view(self):
        """[NvS] float32: the shard's route weights themselves."""
        self._check_alive()
        return self._row_weights_view

    @property
    def destroyed(self):
        """Whether destroy() is done; says nothing about operations."""
        return self._destroyed

    def destroy(self):
        """Waits for what is under way, then leaves the buffer. Idempotent. Views hold zeros from then
        on, and are this process's own. Other ranks are not waited for: the worker keeps the shard.
        An operation's failure that nobody has been told of is a PerigeeError when all is done; one of
        leaving leaves it to be called again."""
        if self._destroyed:
            return
        waits, self._leaving = not self._leaving, True
        try:
            if waits:
                self._before_leaving()
        finally:
            self._under_way.clear()
            self._attachment.leave()
            self._destroyed = True

    def _before_leaving(self):
        while self._under_way:
            self._await_first()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.destroy()

    def __del__(self):
        if getattr(self, "_destroyed", True):
            return
        if self._explicitly_destroy and not self._leaving:
            warnings.warn(f"{self.name}, rank {self.rank}: destroy() was not called",
                          ResourceWarning, stacklevel=2)
        self._destroyed = True
        with contextlib.suppress(PerigeeError):
            self._attachment.leave()

    # ---- Within: what DeviceBuffer does in another way ----

    def _begin(self, stream):
        del stream
        self._check_alive()

    def _before_command(self):
        """Of every command."""

    def _new_event(self, command, **options):
        return self._EVENT(self._attachment, command, self._timeout,
                           await_earlier=weakref.WeakMethod(self._await_before), **options)

    # ---- Within ----

    def _check_alive(self):
        if self._leaving:
            raise ValueError(f"{self.name}, rank {self.rank}, has been destroyed")

    def _submit(self, uses, finish, name, *arguments):
        if self._program is None:
            self._tell_released()
        return self._hand_over(name, *arguments, uses=frozenset(uses), finish=finish)

    def _tell_released(self):
        # Of a dispatch that failed there is no plan, and nobody to tell.
        while self._released:
            self._hand_over("perigee_release_plan", self._released.popleft(), quiet=True)

    def _hand_over(self, name, *arguments, **options):
        self._check_room_in_program()
        while len(self._under_way) >= _MOST_UNDER_WAY:
            self._await_first()
        self._before_command()
        event = self._new_event(self._attachment.submit(name, *arguments), **options)
        self._under_way.append(event)
        self._keep(event)
        return event

    def _await_first(self):
        """A failure that nobody has been told of yet is told here."""
        event = self._under_way[0]
        event.check_handed_over()
        try:
            if not event.told:
                event.wait()
        finally:
            if event.over:
                self._under_way.popleft()

    def _await_before(self, event):
        while event in self._under_way and self._under_way[0] is not event:
            self._await_first()

    def _await_users(self, writes):
        """Waits until nothing is under way that uses what is about to be written, in order."""
        while any("anything" in writes or event.uses & writes for event in self._under_way):
            self._await_first()

    def _end(self, event, async_finish, results, async_results):
        if async_finish:
            return async_results
        self._check_may_wait()
        while not event.over:
            self._await_first()
        event.wait()
        return results

    def _check_rows_shape(self, shape, what, least, most):
        if len(shape) != 2 or shape[1] != self.H or not (least or 0) <= shape[0] <= most:
            raise ValueError(f"{what} is {list(shape)}, expected "
                             f"[{most if least == most else f'0 to {most}'}, {self.H}]")

    def _optional(self, array, what, shape):
        return None if array is None else self._array(array, what, "float32", shape)

    def _routes_of(self, array):
        """As topk_experts_sk, of any number of tokens that there may be."""
        count = 0 if array is None else next(iter(self._shape_of(array, "topk_experts_sk")), 0)
        if count > self.S:
            raise ValueError(f"topk_experts_sk has {count} tokens, expected 0 to {self.S}")
        return self._array(array, "topk_experts_sk", "int32", (count, self.K))

    def _stage(self, array, view, zero_copy, what, flag):
        """Whether the array has to be copied into the shard."""
        if self._is_view(array, view):
            return False
        if zero_copy:
            raise ValueError(f"{what} is not the shard's own view, which {flag} takes")
        return True
