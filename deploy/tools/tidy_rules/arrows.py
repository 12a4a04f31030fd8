"""Include arrows: which folder may include which, and what pure code must not include at all.

The table of docs/architecture.md, as data. A path belongs to the longest folder of FOLDERS that it
lies in; it may include its own folder and those named beside it (with everything below them).
"""

import re

from tidy_rules.source_tree import Finding

_KERNELS_BACKEND = ["kernels/common", "kernels/layout", "kernels/algo", "kernels/plan",
                    "kernels/rank", "kernels/backend.h", "kernels/direct_publication.h",
                    "kernels/owner_source.h", "kernels/living_source.h",
                    "kernels/mapping_access.h", "kernels/row_producer.h",
                    "kernels/buffer_rings.h", "kernels/link_traffic.h"]
_SERVER_OUTSIDE = ["proto", "kernels/common", "kernels/layout", "kernels/plan",
                   "server/wire_time.h"]
_WORKER_OUTSIDE = ["proto", "kernels"]

FOLDERS = {
    "kernels": ["kernels/common", "kernels/layout"],
    "kernels/backend_registry.cc": ["kernels"],  # the one place that knows every backend
    "kernels/common": [],
    "kernels/layout": ["kernels/common"],
    "kernels/algo": ["kernels/common", "kernels/layout"],
    "kernels/plan": ["kernels/common", "kernels/layout"],
    "kernels/device": ["kernels/common", "kernels/layout", "kernels/backend.h"],
    "kernels/rank": ["kernels/common", "kernels/layout", "kernels/plan", "kernels/backend.h",
                     "kernels/direct_publication.h", "kernels/owner_source.h",
                     "kernels/living_source.h", "kernels/mapping_access.h",
                     "kernels/row_producer.h", "kernels/buffer_rings.h"],
    "kernels/staged": _KERNELS_BACKEND,
    "kernels/host": _KERNELS_BACKEND,
    "kernels/cuda": _KERNELS_BACKEND + ["kernels/device", "kernels/staged"],
    "proto/v1": [],
    "proto/support": ["proto/v1", "kernels/common"],
    "proto/local": ["proto/support", "kernels/common"],
    "server": _SERVER_OUTSIDE + ["server"],
    # rpc/ and main feed the logic; the logic knows neither.
    "server/topology": _SERVER_OUTSIDE + ["server/store"],
    "server/groups": _SERVER_OUTSIDE + ["server/topology", "server/publication", "server/store"],
    "server/publication": _SERVER_OUTSIDE + ["server/store"],
    "server/tenants": _SERVER_OUTSIDE + ["server/store"],
    "server/store": ["proto", "kernels/common"],
    "server/rpc": _SERVER_OUTSIDE + ["server"],
    "server/dashboard": _SERVER_OUTSIDE + ["server"],
    "worker": _WORKER_OUTSIDE + ["worker"],
    "worker/memory": _WORKER_OUTSIDE,
    "worker/publication": _WORKER_OUTSIDE,
    "worker/ops": _WORKER_OUTSIDE + ["worker/memory", "worker/publication"],
    "worker/session": _WORKER_OUTSIDE + ["worker/memory", "worker/ops", "worker/publication"],
    "worker/attach": _WORKER_OUTSIDE + ["worker/memory", "worker/ops", "worker/session"],
    "worker/rpc": _WORKER_OUTSIDE + ["worker"],
    # Worker and client of its rank in one process: it implements the client's interface.
    "worker/embedded": _WORKER_OUTSIDE + ["worker", "client/lib/rank_client.h",
                                          "client/lib/peer_rows.h",
                                          "client/lib/shared_region.h",
                                          "client/lib/stream_link.h",
                                          "client/lib/attach_request.h"],
    "client": ["proto", "kernels/common", "kernels/layout", "kernels/plan"],
    # Local clients share a GPU's memory with their worker.
    "client/lib": ["proto", "kernels/common", "kernels/layout", "kernels/plan", "kernels/device",
                   "kernels/mapping_access.h"],
    "client/cli": ["proto", "kernels/common", "kernels/layout", "kernels/plan", "client/lib"],
    "client/examples": ["proto", "kernels", "client/lib", "worker/worker.h", "worker/embedded"],
    "tests": ["client", "kernels", "proto", "server", "tests", "worker"],
}
# Fakes and matchers: those of all, and each top folder's own (server/testing).
FOR_TESTS = ["tests/testing"]
# (file, what it includes against the arrows): may lose entries, not gain any.
EXCEPTIONS = set()

_GRPC = re.compile(r"grpc|\.grpc\.pb\.h$")
_NVCC_FOREIGN = re.compile(r"^(absl|google/protobuf|grpc|grpcpp|spdlog|fmt)/|\.pb\.h$")
_POLICY_FOREIGN = re.compile(
    r"^(mutex|shared_mutex|condition_variable|thread|atomic|future|chrono|ctime|time\.h)$"
    r"|^(sys/(socket|un|epoll|eventfd|mman|time)|netinet/.*|arpa/.*|unistd|poll|pthread)(\.h)?$"
    r"|^absl/(time/clock|synchronization/.*)\.h$|^proto/support/(clock|random|event_log)\.h$"
    r"|grpc|cuda")

# What nvcc compiles.
NVCC_FOLDERS = ["kernels/common", "kernels/layout", "kernels/algo"]
# Logic that a test or a simulation runs with no transport.
NO_GRPC_FOLDERS = ["server/topology", "server/groups", "server/publication", "worker/ops",
                   "worker/session", "worker/attach", "worker/publication", "kernels", "proto/local"]
# Decisions: a snapshot in, an action out. No lock, clock, socket, CUDA or transport. A folder
# stands for all its files, tests excepted.
POLICY_PATHS = [
    "kernels/plan",
    "kernels/rank/agreement.h",
    "kernels/rank/agreement.cc",
    "kernels/rank/argument_checks.h",
    "kernels/rank/argument_checks.cc",
    "server/topology",
    "server/groups",
    "server/publication",
    "worker/memory/ticket_book.h",
    "worker/memory/ticket_book.cc",
    "worker/attach/attach_ticket_book.h",
    "worker/attach/attach_ticket_book.cc",
    "client/cli/cluster/restart_policy.h",
    "client/cli/cluster/restart_policy.cc",
]

_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def includes(text):
    """[(line, path, quoted)] of one file."""
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(2), match.group(1) == '"')
            for match in _INCLUDE.finditer(text)]


def is_below(path, folders):
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def is_test(path):
    return path.startswith("tests/") or re.search(r"_(test|bench)\.\w+$|/testing/", path)


def owning_folder(path):
    found = [folder for folder in FOLDERS if is_below(path, [folder])]
    return max(found, key=len) if found else None


def _may_include(path, included):
    own = owning_folder(path)
    for_tests = FOR_TESTS + [path.split("/")[0] + "/testing"] if is_test(path) else []
    return owning_folder(included) == own or is_below(included, FOLDERS[own] + for_tests)


def check_arrows(tree, exceptions=None):
    """Project includes against FOLDERS."""
    exceptions = EXCEPTIONS if exceptions is None else exceptions
    findings = []
    unused = set(exceptions)
    known = set(tree.paths)
    for path in tree.cpp_paths():
        if owning_folder(path) is None:
            findings.append(Finding(path, 0, "its folder is not in the table of include arrows"))
            continue
        for line, included, quoted in includes(tree.text(path)):
            if not quoted:
                if included in known:
                    findings.append(Finding(path, line, f'include "{included}" with quotes'))
                continue
            if owning_folder(included) is not None:
                if (path, included) in exceptions and not _may_include(path, included):
                    unused.discard((path, included))
                elif not _may_include(path, included):
                    findings.append(Finding(
                        path, line, f"{owning_folder(path)} must not include {included}"))
            elif "/" not in included:  # others are system headers: "absl/..."
                findings.append(
                    Finding(path, line, f"{included}: include by the path from the root"))
    findings += [Finding("deploy/tools/tidy_rules/arrows.py", 0,
                         f"EXCEPTIONS: {path} -> {included} is needless")
                 for path, included in unused]
    return findings


def _reach(tree, path):
    """{included: chain of headers that leads to it}, through the project's own headers."""
    known = set(tree.paths)
    reached = {}
    pending = [(path, [])]
    seen = {path}
    while pending:
        current, chain = pending.pop()
        for _, included, _ in includes(tree.text(current)):
            reached.setdefault(included, chain)
            if included in known and included not in seen:
                seen.add(included)
                pending.append((included, chain + [included]))
    return reached


def _check_reach(tree, folders, foreign, message, endings=("",)):
    """Files below `folders` that end like one of `endings`."""
    findings = []
    for path in tree.cpp_paths():
        if not is_below(path, folders) or is_test(path) or not path.endswith(endings):
            continue
        for included, chain in sorted(_reach(tree, path).items()):
            if foreign.search(included):
                through = f" (through {' -> '.join(chain)})" if chain else ""
                findings.append(Finding(path, 0, f"{message}: {included}{through}"))
    return findings


def check_purity(tree):
    """What must not be included, also not through a header of our own."""
    return (
        _check_reach(tree, NVCC_FOLDERS, _NVCC_FOREIGN, "nvcc compiles this folder; not for it") +
        _check_reach(tree, ["kernels"], _NVCC_FOREIGN, "nvcc compiles this file; not for it",
                     endings=(".cu", ".cuh")) +
        _check_reach(tree, NO_GRPC_FOLDERS, _GRPC, "logic has no transport") +
        _check_reach(tree, POLICY_PATHS, _POLICY_FOREIGN,
                     "a policy has no lock, clock, socket, device or transport"))


def check_policies_exist(tree):
    return [Finding("deploy/tools/tidy_rules/arrows.py", 0, f"POLICY_PATHS: {path} is not there")
            for path in POLICY_PATHS if not any(is_below(known, [path]) for known in tree.paths)]
