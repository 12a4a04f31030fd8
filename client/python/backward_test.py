#!/usr/bin/python3
"""perigee.torch in a process without torch, as far as that goes: what is refused before anything moves."""

import contextlib
import sys
import types
import unittest


class Tensor:
    """As much of torch.Tensor as is looked at."""

    def __init__(self, requires_grad):
        self.requires_grad = requires_grad


class Function:
    """torch.autograd.Function, whose apply() is where operations start."""

    started = []

    @classmethod
    def apply(cls, *arguments):
        Function.started.append(cls.__name__)
        for argument in arguments:
            if isinstance(argument, list):
                argument.append("plan")
        return "rows"


def fake_torch():
    torch, autograd, function = (types.ModuleType(name) for name in (
        "torch", "torch.autograd", "torch.autograd.function"))
    torch.autograd, autograd.function, autograd.Function = autograd, function, Function
    torch.Tensor, torch.grads = Tensor, True
    torch.is_grad_enabled = lambda: torch.grads
    function.once_differentiable = lambda backward: backward
    return {"torch": torch, "torch.autograd": autograd, "torch.autograd.function": function}


MODULES = fake_torch()
sys.modules.update(MODULES)

import perigee.torch  # noqa: E402
from perigee.expert_arrays import ExpertArrays  # noqa: E402


class Buffer(ExpertArrays):
    """That of 8 experts on 4 ranks."""

    name, E, R = "buffers/b", 8, 4

    def __init__(self, slots):
        self.B = slots

    def _check_alive(self):
        pass


class BackwardTest(unittest.TestCase):

    def setUp(self):
        Function.started.clear()

    def operations(self, buffer, leaf, other):
        """Each with `leaf` in every place that is differentiated, one at a time."""
        yield "_Dispatch", lambda: perigee.torch.dispatch(buffer, leaf, None)
        yield "_Dispatch", lambda: perigee.torch.dispatch(buffer, other, None, leaf)
        yield "_Combine", lambda: perigee.torch.combine(buffer, "plan", leaf)
        yield "_Combine", lambda: perigee.torch.combine(buffer, "plan", other, leaf)
        for place in range(6):
            given = [leaf if i == place else other for i in range(6)]
            yield "_ExpertWeights", lambda given=given: perigee.torch.expert_weights(
                buffer, "plan", given[:3], given[3:])

    def run_operation(self, operation):
        with contextlib.suppress(ValueError):  # "rows" is not two results
            operation()

    def test_what_would_be_differentiated_wants_a_slot_for_every_remote_expert(self):
        for slots in (0, 1):
            for name, operation in self.operations(Buffer(slots), Tensor(True), Tensor(False)):
                with self.assertRaisesRegex(
                        ValueError, f"^buffers/b: B is {slots}, expected at least E/R = 2: ", msg=name):
                    operation()
        self.assertEqual(Function.started, [])

    def test_enough_slots_and_what_has_no_gradient_are_taken(self):
        names = ["_Dispatch"] * 2 + ["_Combine"] * 2 + ["_ExpertWeights"] * 6
        for slots, leaf, grads in ((2, True, True), (3, True, True), (1, False, True), (1, True, False)):
            Function.started.clear()
            MODULES["torch"].grads = grads
            self.addCleanup(setattr, MODULES["torch"], "grads", True)
            for _, operation in self.operations(Buffer(slots), Tensor(leaf), Tensor(False)):
                self.run_operation(operation)
            self.assertEqual(Function.started, names, (slots, leaf, grads))


if __name__ == "__main__":
    unittest.main()
