"""A cluster of this machine for a test: `perigee up`, bounded in time, gone with the test."""

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time

STEP_SECONDS = 60


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
