"""A cluster of this machine for a test: `perigee up`, bounded in time, gone with the test."""

import multiprocessing
import os
import random
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import perigee

STEP_SECONDS = 60
SEED = int(os.environ.get("PERIGEE_SEED", random.randrange(2**31)))


class TestCluster:
    """A coordinator and workers; `address` is the coordinator's."""

    def __init__(self, ranks):
        self._directory = tempfile.mkdtemp(prefix="pgp-", dir="/tmp")
        self._process = subprocess.Popen(
            ["client/cli/perigee", "up", "--ranks", str(ranks)], stdout=subprocess.PIPE,
            env=dict(os.environ, TMPDIR=self._directory))
        self.address = None
        self.worker_pids = []
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise

    def _await_ready(self):
        stream = self._process.stdout
        os.set_blocking(stream.fileno(), False)
        selector = selectors.DefaultSelector()
        selector.register(stream, selectors.EVENT_READ)
        text, end = b"", time.monotonic() + STEP_SECONDS
        while b"\nready:" not in text:
            if not selector.select(max(0, end - time.monotonic())):
                raise TimeoutError(f"no cluster in {STEP_SECONDS} s: {text!r}")
            more = stream.read()
            if not more:
                raise RuntimeError(f"perigee up has ended: {text!r}")
            text += more
        for words in (line.split() for line in text.decode().splitlines()):
            if words[0] == "coordinator":
                self.address = words[1]
            if words[0] == "worker":
                self.worker_pids.append(int(words[4]))

    def stop(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STEP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def run_ranks(run, ranks, address, buffer, steps):
    """The results [rank] of run(address, buffer, rank, SEED, steps), each rank in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(ranks) as pool:
        return pool.starmap_async(
            run, [(address, buffer, rank, SEED, steps) for rank in range(ranks)],
            chunksize=1).get(STEP_SECONDS)


def take_steps(known, address, name, rank, seed, steps):
    """Attaches to the rank and takes the steps, functions of `known`; their results."""
    with perigee.Cluster(address) as cluster:
        buffer = perigee.Buffer(cluster, name, rank)
    with buffer:
        return [known[step](buffer, seed, *arguments) for step, *arguments in steps]


class ClusterTest(unittest.TestCase):
    """With a cluster of RANKS workers. The seed is printed; PERIGEE_SEED=n runs that one again."""

    RANKS = 0

    @classmethod
    def setUpClass(cls):
        print(f"PERIGEE_SEED={SEED}", flush=True)
        cls.services = TestCluster(cls.RANKS)
        cls.addClassCleanup(cls.services.stop)
        cls.cluster = perigee.Cluster(cls.services.address)
        cls.addClassCleanup(cls.cluster.close)


class GroupTest(ClusterTest):
    """And with a group of them all for each test."""

    def setUp(self):
        self.group = self.cluster.create_group(self.RANKS)
        self.addCleanup(self.cluster.delete_group, self.group)
