#!/usr/bin/python3
"""Clients that are killed at random points, attaching or at work, while the other rank's client goes on.
The workers live, what they have open and mapped is what it was, and clients attach again.
PERIGEE_CLIENT_KILLS (20) says how many; the seed is printed, and PERIGEE_SEED=n gives it back."""

import contextlib
import ctypes
import os
import random
import select
import signal
import traceback
import unittest

import numpy

import perigee
import python_cluster

SEED = int(os.environ.get("PERIGEE_SEED", random.randrange(2**31)))
KILLS = int(os.environ.get("PERIGEE_CLIENT_KILLS", 20))
RANKS, S, H, K, E = 2, 16, 32, 2, 4
STEP_SECONDS = python_cluster.STEP_SECONDS
PR_SET_PDEATHSIG = 1  # linux/prctl.h: no client outlives a test that fails


class Child:
    """A process that calls work(tell); its words come back by the pipe. This process has no threads and
    no connection of its own, so that it can fork."""

    def __init__(self, work):
        self._words, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._words)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            status = 1
            try:
                work(lambda word: os.write(write, word))
                status = 0
            except BaseException:  # of a process that unwinds no further
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)

    def read(self, count):
        """So many bytes, or those that come before its end."""
        words = b""
        while len(words) < count:
            if not select.select([self._words], [], [], STEP_SECONDS)[0]:
                raise TimeoutError(f"no word of a client in {STEP_SECONDS} s")
            more = os.read(self._words, count - len(words))
            if not more:
                break
            words += more
        return words

    def end(self, number=signal.SIGKILL):
        """Its exit status; killed first, unless number is 0."""
        os.kill(self.pid, number)
        status = os.waitpid(self.pid, 0)[1]
        os.close(self._words)
        return status


def work_for_ever(address, name, rank):
    """A word when it has attached, and one for each operation."""

    def work(tell):
        cluster = perigee.Cluster(address)
        hidden = numpy.ones((S, H), numpy.uint16)
        routes = numpy.arange(S * K, dtype=numpy.int32).reshape(S, K) % E
        while True:
            # The other one's end ends this one, too, and may end the generation.
            with contextlib.suppress(perigee.PerigeeError):
                buffer = perigee.Buffer(cluster, name, rank, timeout=STEP_SECONDS)
                tell(b"a")
                while True:
                    # One that is killed leaves slots taken that the next one needs.
                    rows, _, _, plan, slot = buffer.dispatch(hidden, None, routes, reuse_output=True)
                    tell(b"d")
                    buffer.combine(plan, rows)
                    slot.release()
                    tell(b"c")

    return work


def open_and_mapped(pid):
    """How many descriptors a process has, and how many mappings of shared memory."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return len(os.listdir(f"/proc/{pid}/fd")), sum("memfd:" in line for line in maps)


class ClientKillTest(unittest.TestCase):

    def setUp(self):
        print(f"PERIGEE_SEED={SEED}", flush=True)
        self.random = random.Random(SEED)
        self.services = python_cluster.TestCluster(RANKS)
        self.addCleanup(self.services.stop)
        self.name = self.ask(self.create).decode()

    def ask(self, work):
        child = Child(work)
        words = child.read(4096)
        self.assertEqual(child.end(0), 0)
        return words

    def create(self, tell):
        with perigee.Cluster(self.services.address) as cluster:
            group = cluster.create_group(RANKS)
            tell(cluster.create_buffer(group, S=S, H=H, K=K, E=E, dispatch_output_slots=2).encode())

    def start(self, rank):
        return Child(work_for_ever(self.services.address, self.name, rank))

    def settled(self):
        """Of each worker, when clients have come, worked and gone in good order."""

        def come_and_go(rank):
            def work(tell):
                met = False
                with perigee.Cluster(self.services.address) as cluster:
                    while not met:
                        # The last ones may be on their way out, and an operation of theirs is met then.
                        with contextlib.suppress(perigee.PerigeeError):
                            with perigee.Buffer(cluster, self.name, rank) as buffer:
                                buffer.barrier()
                                met = True
                tell(b"x")
            return work

        children = [Child(come_and_go(rank)) for rank in range(RANKS)]
        for child in children:
            self.assertEqual(child.read(2), b"x")
            self.assertEqual(child.end(0), 0)
        return [open_and_mapped(pid) for pid in self.services.worker_pids]

    def test_workers_live_and_have_what_they_had(self):
        before = self.settled()
        children = [self.start(rank) for rank in range(RANKS)]
        for child in children:
            child.read(1)
        attached = [open_and_mapped(pid) for pid in self.services.worker_pids]
        self.assertTrue(all(more > less for more, less in zip(attached, before)), "nothing is seen")
        for _ in range(KILLS):
            victim = self.random.randrange(RANKS)
            children[victim].read(self.random.randrange(12))
            for _ in range(self.random.randrange(20000)):
                pass  # somewhere in the middle
            self.assertEqual(children[victim].end(), signal.SIGKILL, "it had ended by itself")
            children[victim] = self.start(victim)
        for child in children:
            child.end()
        self.assertEqual(self.settled(), before)


if __name__ == "__main__":
    unittest.main()
