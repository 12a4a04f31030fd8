#!/usr/bin/env python3
"""perigee.Buffer on a GPU against torch's index operations: the forward sequence of the guide, streams,
gradients, failures, output slots; and the whole sequence of a training step against torch's autograd. A process a
rank. Needs torch with CUDA; the programs and the package are found as tests/device/pack.sh lays them
out, or by PERIGEE_PROGRAMS and PYTHONPATH.

  tests/device/torch_sequence.py [--ranks R] [--rounds N] [--devices D] [--seed S]

With --devices 1 the workers share a GPU. Prints PASS and exits with 0 where all holds."""

import argparse
import collections
import multiprocessing
import os
import pathlib
import random
import subprocess
import sys
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(os.environ.get("PERIGEE_PROGRAMS", ROOT / ".device/programs"))
sys.path.insert(0, str(PROGRAMS / "client/python"))
os.environ.setdefault("PERIGEE_LIBRARY", str(PROGRAMS / "client/lib/libperigee.so"))
# tests/device/run.sh has it EAGER for the workers; all of torch's kernels would take long.
WORKER_ENVIRONMENT = dict(os.environ)
os.environ["CUDA_MODULE_LOADING"] = "LAZY"

import torch  # noqa: E402

from torch_checks import (  # noqa: E402
    B, E, H, INTERMEDIATE, K, LAYERS, S, VERSION, Inputs, all_inputs, check, check_rows, check_tokens,
    expert_of_rows, layer_of)
from torch_guide import guide_round  # noqa: E402
from torch_training import training_round  # noqa: E402

STEP_SECONDS = 240
SLOTS = 2


def experts_of_caller(buffer, plan, cu_seqlens, rows, scale):
    experts = expert_of_rows(buffer, plan, cu_seqlens)
    factor = torch.where(experts >= 0, scale[experts.clamp(min=0)], 0.0)
    return torch.where(experts[:, None] >= 0, rows.float() * factor[:, None], 0.0).to(
        torch.bfloat16)


def copies_round(buffer, seed, number, scale):
    """dispatch, the caller's experts, combine, all by copies."""
    mine = Inputs(seed, number, buffer.rank)
    rows, weights, cu_seqlens, plan = buffer.dispatch(mine.hidden.cuda(), mine.weights.cuda(),
                                                      mine.routes.cuda())
    found = check_rows(buffer, all_inputs(seed, number, buffer.R), rows, weights, plan, cu_seqlens)
    output = experts_of_caller(buffer, plan, cu_seqlens, rows, scale)
    buffer.hidden_nvsh_buffer_view.fill_(7)  # what combine is given is not what lies there
    tokens, weights_sk, event = buffer.combine(plan, output, weights)
    check(event is None, "an event that nobody asked for")
    check_tokens(mine, scale, tokens, weights_sk)
    buffer.synchronize()
    return found


def in_place_round(buffer, seed, number, scale):
    """The same in the shard itself, on a stream of its own, and nobody waits on the host."""
    mine = Inputs(seed, number, buffer.rank)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        rows, weights, cu_seqlens, plan, event = buffer.dispatch(
            mine.hidden.cuda(), mine.weights.cuda(), mine.routes.cuda(), zero_copy=True,
            router_weights_zero_copy=True, async_finish=True)
        event.wait()
        check(rows.data_ptr() == buffer.hidden_nvsh_buffer_view.data_ptr(), "a copy of the shard")
        kept = rows.clone(), weights.clone()
        rows.copy_(experts_of_caller(buffer, plan, cu_seqlens, rows, scale))
        tokens, weights_sk, done = buffer.combine(plan, rows, weights, zero_copy=True,
                                                  router_weights_zero_copy=True, async_finish=True)
        # By the saved plan, behind it: rows and padding as before.
        again, _, none, same, last = buffer.dispatch(mine.hidden.cuda(), plan=plan,
                                                     async_finish=True)
        # On two streams, whose second has to wait for copies on the first.
        with torch.cuda.stream(torch.cuda.Stream()):
            done.wait()
        done.wait()
        check_tokens(mine, scale, tokens, weights_sk)
        last.wait()
        used = int(cu_seqlens[-1])
        check(none is None and same is plan, "a saved plan makes no other")
        check(torch.equal(again[:used], kept[0][:used]), "the saved plan's rows differ")
        last.synchronize()
        done.synchronize()
        check(done.duration > 0, "no duration")
        found = check_rows(buffer, all_inputs(seed, number, buffer.R), *kept, plan, cu_seqlens)
        buffer.synchronize()
    torch.cuda.current_stream().wait_stream(stream)
    return found


def own_weights_round(buffer, seed, number, layer):
    """prefetch_weight and the worker's own experts, against each token's one by one."""
    mine = Inputs(seed, number, buffer.rank)
    gate, up, down = layer
    _, _, _, plan = buffer.dispatch(mine.hidden.cuda(), mine.weights.cuda(), mine.routes.cuda(),
                                    zero_copy=True, router_weights_zero_copy=True)
    done = buffer.prefetch_weight(plan, weights_version=VERSION, async_finish=True)
    done.wait()
    buffer.run_experts(plan, weights_version=VERSION, apply_route_weights=True)
    tokens, _, _ = buffer.combine(plan, buffer.hidden_nvsh_buffer_view, zero_copy=True)
    expected = torch.zeros(mine.count, H, device="cuda")
    hidden, routes = mine.hidden.cuda().float(), mine.routes.cuda().long()
    for expert in range(E):
        token, k = (routes == expert).nonzero(as_tuple=True)
        x = hidden[token]
        inner = (torch.nn.functional.silu(x @ gate[expert]) * (x @ up[expert]))
        y = inner.to(torch.bfloat16).float() @ down[expert]
        expected.index_add_(0, token, y * mine.weights.cuda()[token, k][:, None])
    error = (tokens[:mine.count].float() - expected).norm(dim=1)
    check(bool(torch.all(error <= 0.02 * expected.norm(dim=1) + 1e-6)), "the worker's experts")
    buffer.synchronize()


def gradient_round(buffer, seed, number, scale):
    """perigee.torch against the same sums by index, differentiated by torch."""
    import perigee.torch
    mine = Inputs(seed, number, buffer.rank)
    hidden = mine.hidden.cuda().requires_grad_()
    weights = mine.weights.cuda().requires_grad_()
    routes = mine.routes.cuda()
    rows, row_weights, plan = perigee.torch.dispatch(buffer, hidden, routes, weights)
    experts = expert_of_rows(buffer, plan, plan.cu_seqlens)
    factor = torch.where(experts >= 0, scale[experts.clamp(min=0)], 0.0)
    output = (rows.float() * (factor * row_weights)[:, None]).to(torch.bfloat16)
    tokens, _ = perigee.torch.combine(buffer, plan, torch.where(experts[:, None] >= 0, output, 0))
    upstream = torch.randn(S, H, device="cuda").to(torch.bfloat16)
    tokens.backward(upstream)
    gradient = upstream[:mine.count].float()
    by_route = scale[routes.long().clamp(min=0)] * (routes >= 0)
    expected = gradient * (by_route * mine.weights.cuda()).sum(1)[:, None]
    bound = gradient.abs() * (by_route * mine.weights.cuda()).sum(1)[:, None] / 32 + 1e-6
    check(bool(torch.all((hidden.grad.float() - expected).abs() <= bound)), "hidden's gradient")
    dot = (gradient * mine.hidden.cuda().float()).sum(1)[:, None] * by_route
    size = (gradient * mine.hidden.cuda().float()).abs().sum(1)[:, None] * by_route
    check(bool(torch.all((weights.grad - dot).abs() <= size / 64 + 1e-6)), "weights' gradient")
    buffer.synchronize()


def backward_refusal_round(buffer, seed, number):
    """What would be differentiated with B < E/R is refused before anything moves."""
    import perigee.torch
    mine = Inputs(seed, number, buffer.rank)
    told = None
    try:
        perigee.torch.dispatch(buffer, mine.hidden.cuda().requires_grad_(), mine.routes.cuda())
    except ValueError as error:
        told = str(error)
    wanted = f"B is {B}, expected at least E/R = {E // buffer.R}"
    check(told is not None and wanted in told, f"a gradient with few slots: {told}")


def refusal_round(buffer, seed, number, scale):
    """A route that cannot be on one rank is every rank's error, and the next operation works."""
    import perigee
    mine = Inputs(seed, number, buffer.rank)
    routes = mine.routes.cuda()
    if buffer.rank == 1 % buffer.R:
        routes[0, 0] = E
    event = buffer.dispatch(mine.hidden.cuda(), mine.weights.cuda(), routes, async_finish=True)[-1]
    for _ in range(2):
        try:
            event.synchronize()
            raise AssertionError(f"a route to expert {E} was taken")
        except perigee.PerigeeError as error:
            check(error.reason == "BAD_ROUTE", error.reason)
    for what, array in (("host", mine.hidden), ("float", mine.hidden.cuda().float()),
                        ("strided", torch.zeros(H, S, dtype=torch.bfloat16, device="cuda").t())):
        try:
            buffer.dispatch(array, mine.weights.cuda(), mine.routes.cuda())
            raise AssertionError(f"{what} rows were taken")
        except (TypeError, ValueError):
            pass
    return copies_round(buffer, seed, number + 1, scale)


def publication_round(buffer, seed, number, scale):
    """Published directly, the rows of this rank by an index operation of torch, beside all else."""
    mine = Inputs(seed, number, buffer.rank)
    hidden, weights, routes = mine.hidden.cuda(), mine.weights.cuda(), mine.routes.cuda()
    target = buffer.prepare_dispatch(routes)
    prepared, _ = buffer.prepare_publication(target, weights, async_finish=True)
    buffer.store_rows(target, hidden)
    dst = target.plan.dst[:mine.count * K].long()
    own = (dst >= 0) & (dst // buffer.NvS == buffer.rank)
    rows = target.mapped_hidden[buffer.rank]
    rows[dst[own] % buffer.NvS] = 7
    rows[dst[own] % buffer.NvS] = hidden[own.nonzero()[:, 0] // K]
    rows, row_weights, cu_seqlens, plan = buffer.publish(prepared)
    found = check_rows(buffer, all_inputs(seed, number, buffer.R), rows, row_weights, plan, cu_seqlens)
    output = experts_of_caller(buffer, plan, cu_seqlens, rows, scale)
    tokens, weights_sk, _ = buffer.combine(plan, output, row_weights)
    check_tokens(mine, scale, tokens, weights_sk)
    buffer.synchronize()
    return found


def slots_round(buffer, seed, number, scale):
    """More micro-batches than there are slots, as many pending as there are (1F1B)."""
    pending, found = collections.deque(), []

    def finish(at, mine, results):
        rows, weights, cu_seqlens, plan, slot, event = results
        event.wait()
        found.append((at, check_rows(buffer, all_inputs(seed, at, buffer.R), rows, weights, plan,
                                     cu_seqlens)))
        output = experts_of_caller(buffer, plan, cu_seqlens, rows, scale)
        tokens, weights_sk, _ = buffer.combine(plan, output, weights)
        slot.release()
        check_tokens(mine, scale, tokens, weights_sk)

    for at in range(number, number + 3 * SLOTS):
        mine = Inputs(seed, at, buffer.rank)
        pending.append((at, mine, buffer.dispatch(
            mine.hidden.cuda(), mine.weights.cuda(), mine.routes.cuda(), reuse_output=True,
            async_finish=True)))
        if len(pending) == SLOTS:
            finish(*pending.popleft())
    while pending:
        finish(*pending.popleft())
    buffer.synchronize()
    return found


def run_rank(address, name, training, rank, options):
    """All steps of a rank; its routes of each round."""
    try:
        return steps_of_rank(address, name, training, rank, options)
    except BaseException:
        # At once: the other ranks may take long to end.
        print(f"rank {rank}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        raise


def load_libraries():
    """What torch loads at its first use would keep other ranks waiting in the middle of a step."""
    product = torch.zeros(1, 1, device="cuda", requires_grad=True) @ torch.zeros(1, 1, device="cuda")
    torch.nn.functional.silu(product).sum().backward()
    torch.cuda.synchronize()


def steps_of_rank(address, name, training, rank, options):
    import perigee
    torch.cuda.set_device(rank % options.devices)
    load_libraries()
    shared = torch.Generator().manual_seed(options.seed)
    scale = (torch.rand(E, generator=shared) + 0.5).cuda()
    layer = [weights.cuda().float() for weights in layer_of(options.seed)]
    with perigee.Cluster(address) as cluster:
        buffer = perigee.Buffer(cluster, name, rank, timeout=STEP_SECONDS)
    check(isinstance(buffer, perigee.DeviceBuffer), "the buffer is not on a GPU")
    found = []
    with buffer:
        for i in range(options.rounds):
            number = 10 * i
            found.append((number, copies_round(buffer, options.seed, number, scale)))
            found.append((number + 1, in_place_round(buffer, options.seed, number + 1, scale)))
            own_weights_round(buffer, options.seed, number + 2, layer)
            backward_refusal_round(buffer, options.seed, number + 3)
            found.append((number + 5, refusal_round(buffer, options.seed, number + 4, scale)))
            found.append((number + 7, publication_round(buffer, options.seed, number + 7, scale)))
            found.extend(slots_round(buffer, options.seed, 1000 * (i + 1), scale))
        view = buffer.hidden_nvsh_buffer_view
        view.fill_(3)
        torch.cuda.synchronize()
    # Nobody's memory but this process's, and no fault.
    check(not view.any(), "a buffer that was left shows its rows")
    torch.cuda.synchronize()
    with perigee.Cluster(address) as cluster:
        buffer = perigee.Buffer(cluster, training, rank, timeout=STEP_SECONDS)
    with buffer:
        for number in range(5, 10 * options.rounds, 10):
            gradient_round(buffer, options.seed, number - 2, scale)
            found.append((number + 1, training_round(buffer, options.seed, number + 1, layer)))
            guide_round(buffer, options.seed, number + 2, layer)
    return found


def check_every_route_once(results, options):
    for index in range(len(results[0])):
        number = results[0][index][0]
        found = torch.cat([result[index][1] for result in results]).sort().values
        wanted = [((rank * S + token) * K + k)
                  for rank in range(options.ranks)
                  for token, k in (Inputs(options.seed, number, rank).routes >= 0).nonzero().tolist()]
        check(found.tolist() == wanted, f"round {number}: routes without a row, or with two")


class Services:
    """`perigee up`."""

    def __init__(self, options):
        command = [str(PROGRAMS / "client/cli/perigee"), "up", "--ranks", str(options.ranks),
                   "--backend", "cuda"]
        if options.devices == 1:
            command.append("--shared-gpu")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                         env=WORKER_ENVIRONMENT)
        self.address = None
        for line in self._process.stdout:
            words = line.split()
            if words and words[0] == "coordinator":
                self.address = words[1]
            if words and words[0] == "ready:":
                return
        raise RuntimeError("perigee up has ended")

    def stop(self):
        self._process.terminate()
        self._process.wait(60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    options = parser.parse_args()
    print(f"seed {options.seed}, torch {torch.__version__}", flush=True)
    if not torch.cuda.is_available():
        print("SKIPPED: torch sees no GPU")
        return 77
    import perigee
    services = Services(options)
    try:
        with perigee.Cluster(services.address) as cluster:
            group = cluster.create_group(options.ranks, backend="cuda")
            shape = {"S": S, "H": H, "K": K, "E": E, "token_padding": 16, "layers": LAYERS,
                     "intermediate": INTERMEDIATE}
            name = cluster.create_buffer(group, B=B, dispatch_output_slots=SLOTS, **shape)
            # Backward needs a slot for any expert: B is E / R.
            training = cluster.create_buffer(group, gradients=True, **shape)
            for buffer in (name, training):
                cluster.load_weights(buffer, 0, VERSION,
                                     *(weights.view(torch.int16).numpy().view("uint16")
                                       for weights in layer_of(options.seed)))
            with multiprocessing.get_context("spawn").Pool(options.ranks) as pool:
                results = pool.starmap_async(
                    run_rank, [(services.address, name, training, rank, options)
                               for rank in range(options.ranks)], chunksize=1).get(STEP_SECONDS)
            check_every_route_once(results, options)
    finally:
        services.stop()
    print(f"PASS: {options.rounds} rounds of {options.ranks} ranks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
