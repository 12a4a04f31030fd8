#!/usr/bin/python3
"""Planted includes that break the arrows are found, legal ones are not."""

import unittest

from planted_tree import PlantedTreeTest
from tidy_rules import arrows


def including(*headers):
    return "".join(f"#include {name if name[0] == '<' else chr(34) + name + chr(34)}\n"
                   for name in headers)


class ArrowsTest(PlantedTreeTest):

    def assert_refused(self, path, included):
        self.assertEqual(
            self.found(arrows.check_arrows, {path: including("<vector>", included)}),
            [f"{path}:2: {arrows.owning_folder(path)} must not include {included}"])

    def assert_allowed(self, path, included):
        self.assert_clean(arrows.check_arrows, {path: including(included)})

    def test_kernels_and_proto_are_leaves(self):
        self.assert_refused("kernels/plan/a.cc", "proto/support/clock.h")
        self.assert_refused("kernels/host/a.cc", "worker/worker.h")
        self.assert_refused("kernels/backend.h", "kernels/host/host_backend.h")
        self.assert_refused("kernels/algo/a.h", "kernels/host/a.h")
        self.assert_refused("kernels/host/a.cc", "kernels/cuda/a.h")
        self.assert_refused("proto/support/a.cc", "server/topology/a.h")
        self.assert_refused("proto/support/a.cc", "kernels/plan/plan.h")
        self.assert_allowed("kernels/host/a.cc", "kernels/backend.h")
        self.assert_allowed("kernels/plan/a.cc", "kernels/layout/geometry.h")

    def test_server_and_worker_never_include_each_other(self):
        self.assert_refused("server/groups/a.cc", "worker/session/session.h")
        self.assert_refused("worker/rpc/a.cc", "server/coordinator.h")
        self.assert_refused("server/groups/a_test.cc", "worker/worker.h")

    def test_server_takes_no_backend(self):
        self.assert_refused("server/groups/a.cc", "kernels/host/host_backend.h")
        self.assert_refused("server/a.cc", "kernels/backend.h")
        self.assert_allowed("server/groups/a.cc", "kernels/plan/validate.h")
        self.assert_allowed("worker/session/a.cc", "kernels/host/host_backend.h")

    def test_logic_never_includes_rpc(self):
        self.assert_refused("server/topology/a.cc", "server/rpc/service.h")
        self.assert_refused("server/groups/a.cc", "server/rpc/service.h")
        self.assert_refused("worker/ops/a.cc", "worker/rpc/service.h")
        self.assert_refused("worker/session/a.cc", "worker/rpc/service.h")
        self.assert_allowed("server/rpc/a.cc", "server/groups/group.h")
        self.assert_allowed("worker/rpc/a.cc", "worker/session/session.h")
        self.assert_allowed("server/main.cc", "server/rpc/service.h")

    def test_a_session_runs_operations_that_know_no_session(self):
        self.assert_allowed("worker/session/a.cc", "worker/ops/objects.h")
        self.assert_refused("worker/ops/a.cc", "worker/session/session.h")

    def test_client(self):
        self.assert_refused("client/lib/a.cc", "client/cli/flags.h")
        self.assert_refused("client/cli/a.cc", "server/coordinator.h")
        self.assert_refused("client/cli/a.cc", "kernels/host/host_backend.h")
        self.assert_allowed("client/cli/a.cc", "client/lib/client.h")

    def test_fakes_are_for_tests(self):
        self.assert_allowed("server/groups/a_test.cc", "tests/testing/fake_clock.h")
        self.assert_allowed("worker/ops/a_test.cc", "worker/testing/fake.h")
        self.assert_refused("server/groups/a.cc", "tests/testing/fake_clock.h")
        self.assert_refused("worker/ops/a.cc", "worker/testing/fake.h")
        self.assert_refused("server/groups/a_test.cc", "worker/testing/fake.h")
        self.assert_allowed("tests/integration/a_test.cc", "worker/worker.h")

    def test_exceptions_are_exact(self):
        exceptions = {("worker/ops/a.cc", "worker/rpc/b.h")}
        files = {"worker/ops/a.cc": including("worker/rpc/b.h")}
        check = lambda tree: arrows.check_arrows(tree, exceptions)
        self.assert_clean(check, files)
        self.assertEqual(len(self.found(check, {"worker/ops/a.cc": including("worker/rpc/c.h")})), 2)
        self.assertEqual(
            self.found(check, {"worker/ops/a.cc": ""}),
            ["deploy/tools/tidy_rules/arrows.py: EXCEPTIONS: worker/ops/a.cc -> "
             "worker/rpc/b.h is needless"])

    def test_unknown_folder_and_short_includes(self):
        self.assertEqual(self.found(arrows.check_arrows, {"misc/a.cc": ""}),
                         ["misc/a.cc: its folder is not in the table of include arrows"])
        self.assertEqual(
            self.found(arrows.check_arrows, {"server/a.cc": including("a.h")}),
            ["server/a.cc:1: a.h: include by the path from the root"])
        self.assertEqual(
            self.found(arrows.check_arrows,
                       {"server/a.h": "", "server/a.cc": including("<server/a.h>")}),
            ['server/a.cc:1: include "server/a.h" with quotes'])


class PurityTest(PlantedTreeTest):

    def test_nothing_foreign_where_nvcc_compiles(self):
        for header in ("absl/types/span.h", "<grpcpp/grpcpp.h>", "<spdlog/spdlog.h>",
                       "proto/v1/error.pb.h"):
            with self.subTest(header=header):
                found = self.found(arrows.check_purity, {"kernels/layout/a.h": including(header)})
                self.assertTrue(any("nvcc compiles this" in line for line in found), found)
        self.assert_clean(arrows.check_purity, {"kernels/layout/a.h": including("<cstdint>")})

    def test_transport_is_found_through_our_own_header(self):
        files = {"worker/session/a.cc": including("proto/support/b.h"),
                 "proto/support/b.h": including("<grpcpp/support/status.h>")}
        self.assertEqual(self.found(arrows.check_purity, files), [
            "worker/session/a.cc: logic has no transport: grpcpp/support/status.h "
            "(through proto/support/b.h)"])
        for path in ("server/topology/a.cc", "server/publication/a.h", "worker/ops/a.cc",
                     "worker/session/a.cc"):
            found = self.found(arrows.check_purity, {path: including("proto/v1/groups.grpc.pb.h")})
            self.assertTrue(any("logic has no transport" in line for line in found), found)
        self.assert_clean(arrows.check_purity,
                          {"server/rpc/a.cc": including("proto/v1/groups.grpc.pb.h"),
                           "server/groups/a.cc": including("proto/v1/groups.pb.h"),
                           "server/groups/a_test.cc": including("<grpcpp/grpcpp.h>")})

    def test_policies_have_no_lock_clock_socket_or_device(self):
        policy = arrows.POLICY_PATHS[0]
        path = policy if policy.endswith(".h") else policy + "/a.h"
        for header in ("<mutex>", "<condition_variable>", "<chrono>", "absl/time/clock.h",
                       "<sys/socket.h>", "<unistd.h>", "<cuda_runtime.h>", "proto/support/clock.h"):
            with self.subTest(header=header):
                found = self.found(arrows.check_purity, {path: including(header)})
                self.assertTrue(any("a policy has no lock" in line for line in found), found)
        self.assert_clean(arrows.check_purity, {path: including("absl/time/time.h", "<vector>")})

    def test_named_policies_must_exist(self):
        self.assertEqual(len(self.found(arrows.check_policies_exist, {"a.h": ""})),
                         len(arrows.POLICY_PATHS))


if __name__ == "__main__":
    unittest.main()
