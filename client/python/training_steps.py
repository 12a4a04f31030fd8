"""What one rank's process does in training_test.py: a training step of a stack of layers by the public
calls alone, and the same without them. Failures are told by assertion errors."""

import numpy

import perigee

RANKS, S, H, K, E = 4, 16, 32, 3, 8
INTERMEDIATE, LAYERS = 24, 3
B = E // RANKS
VERSION = 5


def rounded(values):
    return perigee.from_bfloat16(perigee.to_bfloat16(numpy.asarray(values, numpy.float32)))


def make_weights(seed):
    """[layer] of gate, up [E, H, H'] and down [E, H', H], as values that bf16 holds."""
    random = numpy.random.default_rng([seed, 77])
    shapes = ((E, H, INTERMEDIATE), (E, H, INTERMEDIATE), (E, INTERMEDIATE, H))
    return [[rounded(random.standard_normal(shape) / 5) for shape in shapes]
            for _ in range(LAYERS)]


class Inputs:
    """One rank's tokens, and the gradients of what comes out of the last layer."""

    def __init__(self, seed, rank):
        random = numpy.random.default_rng([seed, rank])
        self.count = int(random.integers(1, S + 1))
        self.hidden = rounded(random.standard_normal((self.count, H)))
        self.grad = rounded(random.standard_normal((self.count, H)))
        self.routes, self.weights = [], []
        for _ in range(LAYERS):
            # The low experts are wanted more, so that there are replicas.
            wanted = numpy.argsort(random.random((self.count, E)) + numpy.arange(E) / 4, axis=1)
            routes = wanted[:, :K].astype(numpy.int32)
            routes[random.random((self.count, K)) < 0.15] = -1
            self.routes.append(routes)
            self.weights.append(random.random((self.count, K), dtype=numpy.float32))


def _swiglu(x, gate, up):
    a, b = x @ gate, x @ up
    sigmoid = 1 / (1 + numpy.exp(-a))
    return a, b, sigmoid, rounded(a * sigmoid * b)


def expert_forward(x, weights, scale):
    """Rows [n, H] through one expert, each times its route weight."""
    gate, up, down = weights
    return rounded((_swiglu(x, gate, up)[3] @ down) * scale[:, None])


def expert_backward(x, weights, scale, grad):
    """What a framework's autograd gives for the rows of one expert: gradients of the rows, of the route
    weights, and of gate, up and down."""
    gate, up, down = weights
    a, b, sigmoid, h = _swiglu(x, gate, up)
    grad_scale = ((h @ down) * grad).sum(axis=1)
    grad_out = grad * scale[:, None]
    grad_h = grad_out @ down.T
    grad_a = grad_h * b * (sigmoid * (1 + a * (1 - sigmoid)))
    grad_b = grad_h * a * sigmoid
    grad_x = grad_a @ gate.T + grad_b @ up.T
    return grad_x, grad_scale, x.T @ grad_a, x.T @ grad_b, h.T @ grad_out


def groups(buffer, plan):
    """(expert, slot or None, first row, end of its rows without padding) of each group with rows."""
    start = 0
    for group, end in enumerate(plan.cu_seqlens):
        filled = end - plan.zero_fill_ranges[group, 1]
        slot = group - E if group >= E else None
        expert = group if slot is None else int(plan.experts_to_copy[buffer.rank, slot])
        if filled > start:
            yield expert, slot, int(start), int(filled)
        start = end


class Step:
    """One rank's forward and backward. What backward needs is kept the two ways that there are: rows
    are copied out of the shard, or dispatched again by the saved plan."""

    def __init__(self, buffer, seed):
        self.buffer, self.mine = buffer, Inputs(seed, buffer.rank)
        self.weights = make_weights(seed)
        self.plans, self.kept, self.inputs = [], [], []

    def forward(self, layer, hidden):
        buffer, mine = self.buffer, self.mine
        keeps = layer % 2 == 0
        rows, scales, _, plan, _ = buffer.dispatch(
            perigee.to_bfloat16(hidden[:mine.count]), mine.weights[layer], mine.routes[layer],
            zero_copy=not keeps, async_finish=True)
        done = buffer.prefetch_weight(plan, layer=layer, weights_version=VERSION,
                                      async_finish=True)
        done.wait()  # the event of the last covers those before it
        if keeps:
            kept = (perigee.from_bfloat16(rows), scales)
        else:
            kept = None
        self.plans.append(plan)
        self.kept.append(kept)
        self.inputs.append(hidden)
        values = perigee.from_bfloat16(rows)
        out = numpy.zeros_like(values)
        for expert, _, first, end in groups(buffer, plan):
            weights = [matrix[expert] for matrix in self.weights[layer]]
            out[first:end] = expert_forward(values[first:end], weights, scales[first:end])
        hidden, _, event = buffer.combine(plan, perigee.to_bfloat16(out), async_finish=True)
        event.wait()
        return perigee.from_bfloat16(hidden)

    def backward(self, layer, grad):
        buffer, mine, plan = self.buffer, self.mine, self.plans[layer]
        if self.kept[layer] is None:
            again = perigee.to_bfloat16(self.inputs[layer][:mine.count])
            rows, scales, _, _ = buffer.dispatch(again, mine.weights[layer], plan=plan)
            rows = perigee.from_bfloat16(rows)
        else:
            rows, scales = self.kept[layer]
        grad_rows, _, none, same = buffer.dispatch(perigee.to_bfloat16(grad[:mine.count]),
                                                   plan=plan)
        assert none is None and same is plan
        grad_rows = perigee.from_bfloat16(grad_rows)
        home, slots = buffer.gradients(layer)
        grad_x = numpy.zeros_like(rows)
        grad_scales = numpy.zeros_like(scales)
        for expert, slot, first, end in groups(buffer, plan):
            weights = [matrix[expert] for matrix in self.weights[layer]]
            found = expert_backward(rows[first:end], weights, scales[first:end],
                                    grad_rows[first:end])
            grad_x[first:end], grad_scales[first:end] = found[:2]
            place, index = (slots, slot) if slot is not None else (home, expert % (E // RANKS))
            for matrix, sums in zip(found[2:], place):
                sums[index] += matrix
        grad_in, grad_weights, _ = buffer.combine(plan, perigee.to_bfloat16(grad_x), grad_scales)
        buffer.reduce_grad(plan, layer=layer, async_finish=True).wait()
        for sums in slots:
            for slot, expert in enumerate(plan.experts_to_copy[buffer.rank]):
                assert expert < 0 or not sums[slot].any(), "a used slot is clear again"
        return perigee.from_bfloat16(grad_in), grad_weights


def train(buffer, seed):
    """Returns what this rank has: outputs, gradients of inputs and route weights, of its experts."""
    step = Step(buffer, seed)
    mine = step.mine
    hidden = numpy.zeros((S, H), numpy.float32)
    hidden[:mine.count] = mine.hidden
    outputs = []
    for layer in range(LAYERS):
        hidden = step.forward(layer, hidden)
        outputs.append(hidden)
    grad = numpy.zeros((S, H), numpy.float32)
    grad[:mine.count] = mine.grad
    grad_weights = [None] * LAYERS
    for layer in reversed(range(LAYERS)):
        grad, grad_weights[layer] = step.backward(layer, grad)
    gradients = [[sums.copy() for sums in buffer.gradients(layer)[0]] for layer in range(LAYERS)]
    replicas = sum(int((plan.experts_to_copy[buffer.rank] >= 0).sum()) for plan in step.plans)
    for plan in step.plans:
        plan.release()
    return outputs, grad, grad_weights, gradients, replicas


def clear_gradients(buffer, seed):
    del seed
    for layer in range(LAYERS):
        for sums in buffer.gradients(layer)[0]:
            sums.fill(0)


def refuse_what_is_dead(buffer, seed):
    """Reductions that cannot be, before anything is changed."""
    mine = Inputs(seed, buffer.rank)
    hidden = perigee.to_bfloat16(mine.hidden)
    _, _, _, plan = buffer.dispatch(hidden, None, mine.routes[0])
    home, _ = buffer.gradients(0)
    before = [sums.copy() for sums in home]
    try:
        buffer.reduce_grad(plan, layer=LAYERS)
        raise AssertionError("a layer that is none was taken")
    except perigee.PerigeeError as error:
        assert error.code_name == "INVALID_ARGUMENT", error
        assert error.operation == "reduce_gradients", error.operation
        assert f"layer is {LAYERS}" in error.message, error.message
    plan.release()
    try:
        buffer.reduce_grad(plan)
        raise AssertionError("a released plan was taken")
    except ValueError as error:
        assert "released" in str(error), error
    for sums, kept in zip(home, before):
        numpy.testing.assert_array_equal(sums, kept)


def refuse_too_few_slots(buffer, seed):
    """A reduction by a buffer with B < E/R, before anything is started or changed; all else goes on."""
    mine = Inputs(seed, buffer.rank)
    random = numpy.random.default_rng([seed, buffer.rank, 5])
    hidden = perigee.to_bfloat16(mine.hidden)
    rows, _, _, plan = buffer.dispatch(hidden, None, mine.routes[0])
    shapes = ((H, INTERMEDIATE), (H, INTERMEDIATE), (INTERMEDIATE, H))
    arrays = [random.standard_normal((E // RANKS + buffer.B,) + shape, numpy.float32)
              for shape in shapes]
    before = [array.copy() for array in arrays]
    expected, _, _ = buffer.combine(plan, rows)
    for given in ((), arrays):
        for asynchronous in (False, True):
            try:
                buffer.reduce_grad(plan, *given, async_finish=asynchronous)
                raise AssertionError("gradients without a slot were reduced")
            except ValueError as error:
                told = f"B is {buffer.B}, expected at least E/R = {E // RANKS}"
                assert told in str(error) and buffer.name in str(error), error
    try:
        with buffer.program():
            buffer.barrier(async_finish=True)
            buffer.reduce_grad(plan, async_finish=True)
        raise AssertionError("a program with such a reduction was handed over")
    except ValueError as error:
        assert "expected at least E/R" in str(error), error
    for array, kept in zip(arrays, before):
        numpy.testing.assert_array_equal(array, kept)
    numpy.testing.assert_array_equal(buffer.combine(plan, rows)[0], expected)
    buffer.barrier()


def run(address, name, rank, seed, steps):
    """Attaches to the rank and takes the steps; their results."""
    with perigee.Cluster(address) as cluster:
        buffer = perigee.Buffer(cluster, name, rank)
    with buffer:
        return [globals()[step](buffer, seed) for step in steps]
