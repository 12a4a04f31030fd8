#include "client/cli/doctor/machine_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/output.h"

namespace perigee {
namespace {

// A worker without buffers has less; a group of any use has more.
constexpr uint64_t kLeastBytesOfAWorker = uint64_t{64} << 20;
constexpr uint64_t kSomeBytesOfAWorker = uint64_t{1} << 30;
// Docker's own default, which libraries are known to outgrow.
constexpr uint64_t kSomeSharedBytes = uint64_t{64} << 20;
// gRPC, logs and sockets of a process; the peers' connections come on top.
constexpr uint64_t kLeastDescriptors = 256;
// A part of a buffer (a shard, gradients, and a block of weights for each layer) holds one; a
// buffer has 1026 at most.
constexpr uint64_t kSomeDescriptors = 2048;
constexpr uint64_t kSomeLockedBytes = uint64_t{8} << 20;

std::string Bytes(uint64_t bytes) { return FormatBytes(static_cast<int64_t>(bytes)); }

std::string Limit(const absl::optional<uint64_t>& limit) {
  return limit ? absl::StrCat(*limit) : "unlimited";
}

bool AtLeast(const absl::optional<uint64_t>& limit, uint64_t needed) {
  return !limit || *limit >= needed;
}

Finding CheckMemory(const MachineFacts& facts, int32_t ranks) {
  const bool by_group = facts.group.free_bytes && *facts.group.free_bytes < facts.available_bytes;
  const uint64_t available = by_group ? *facts.group.free_bytes : facts.available_bytes;
  const uint64_t least = kLeastBytesOfAWorker * static_cast<uint64_t>(ranks);
  const uint64_t some = kSomeBytesOfAWorker * static_cast<uint64_t>(ranks);
  Finding finding = {
      .name = "memory",
      .found = absl::StrCat(Bytes(available), " available of ",
                            Bytes(by_group ? *facts.group.memory_bytes : facts.total_bytes),
                            by_group ? ", the control group's limit" : ""),
      .expected = absl::StrCat(Bytes(some), " for ", WorkersText(ranks))};
  finding.remedy = by_group ? "raise the limit (memory.max of the control group; docker run "
                              "--memory), or start fewer workers"
                            : "end what holds the memory (ps aux --sort=-rss | head), or start "
                              "fewer workers";
  absl::StrAppend(&finding.remedy, "; `perigee estimate` says what a group takes");
  return Judge(available >= some, available >= least ? FindingState::kWarn : FindingState::kFail,
               std::move(finding));
}

// The host backend's memory is memfd memory, which this folder's size does not limit.
Finding CheckSharedMemoryFolder(const MachineFacts& facts, bool cuda) {
  Finding finding = {
      .name = "shm",
      .found = facts.shm ? absl::StrCat("/dev/shm has ", Bytes(facts.shm->free_bytes), " free of ",
                                        Bytes(facts.shm->total_bytes))
                         : "/dev/shm is not there",
      .expected = cuda ? absl::StrCat(Bytes(kSomeSharedBytes), " free, for CUDA's libraries")
                       : "any: workers share memory by descriptor, not by files there",
      .remedy =
          "mount -o remount,size=1G /dev/shm, or docker run --shm-size=1g; else remove what "
          "lies there (ls -la /dev/shm)"};
  if (!facts.shm) finding.remedy = "mount -t tmpfs -o size=1G tmpfs /dev/shm";
  if (!cuda) absl::StrAppend(&finding.found, "; workers do not need it");
  const bool ok = !cuda || (facts.shm && facts.shm->free_bytes >= kSomeSharedBytes);
  return Judge(ok, FindingState::kWarn, std::move(finding));
}

Finding CheckDescriptors(const MachineFacts& facts, int32_t ranks) {
  const uint64_t least = kLeastDescriptors + static_cast<uint64_t>(ranks);
  // The coordinator and the command do not raise their limit, workers do.
  const bool runs = AtLeast(facts.descriptors, least) && AtLeast(facts.most_descriptors, least);
  return Judge(runs && AtLeast(facts.most_descriptors, kSomeDescriptors),
               runs ? FindingState::kWarn : FindingState::kFail,
               {.name = "descriptors",
                .found = absl::StrCat("soft limit ", Limit(facts.descriptors), ", hard limit ",
                                      Limit(facts.most_descriptors)),
                .expected = absl::StrCat("soft ", least, ", hard ", kSomeDescriptors,
                                         ": one for each part of a buffer"),
                .remedy = absl::StrCat("ulimit -n ", kSomeDescriptors,
                                       " as root, LimitNOFILE= of the service, or docker run "
                                       "--ulimit nofile=65536")});
}

Finding CheckLockedMemory(const MachineFacts& facts) {
  return Judge(
      AtLeast(facts.locked_bytes, kSomeLockedBytes), FindingState::kWarn,
      {.name = "locked_memory",
       .found = facts.locked_bytes ? absl::StrCat(Bytes(*facts.locked_bytes), " may be locked")
                                   : "unlimited",
       .expected = absl::StrCat(Bytes(kSomeLockedBytes), ": drivers pin pages"),
       .remedy = "ulimit -l unlimited as root, LimitMEMLOCK=infinity of the service, or "
                 "docker run --ulimit memlock=-1"});
}

Finding CheckCpus(const MachineFacts& facts, int32_t ranks) {
  const bool by_group = facts.group.cpus && *facts.group.cpus < facts.cpus;
  const double cpus = by_group ? *facts.group.cpus : facts.cpus;
  return Judge(cpus >= ranks, FindingState::kWarn,
               {.name = "cpus",
                .found = absl::StrFormat("%g CPUs for %s%s", cpus, WorkersText(ranks),
                                         by_group ? ", the control group's limit" : ""),
                .expected = "one for each worker",
                .remedy = absl::StrFormat(
                    "start %s at most, or raise %s: where CPUs are short, workers wait for "
                    "each other and may miss their lease of 2 s",
                    WorkersText(std::max(1, static_cast<int>(cpus))),
                    by_group ? "cpu.max of the control group" : "the affinity (taskset)")});
}

}  // namespace

std::vector<Finding> CheckMachine(const MachineFacts& facts, int32_t ranks, bool cuda) {
  std::vector<Finding> findings = {CheckMemory(facts, ranks), CheckSharedMemoryFolder(facts, cuda),
                                   CheckDescriptors(facts, ranks)};
  if (cuda) findings.push_back(CheckLockedMemory(facts));
  findings.push_back(CheckCpus(facts, ranks));
  return findings;
}

}  // namespace perigee
