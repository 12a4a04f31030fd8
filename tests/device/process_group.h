// The fixture of tests with a process for each rank, on any backend. The test's own process never
// uses CUDA: it forks the ranks and tells them what to do, so a test reads as a script. Descriptors
// go from each rank to the test, which passes them on to all ranks.
//
// All ranks are on device 0, or with PERIGEE_DEVICES=N process i is on device i % N. Cases of
// backend "cuda" are skipped, saying why, where there is no device, and fail where there are fewer
// than PERIGEE_DEVICES. Killing ranks needs a
// machine without MPS: under it a process that is killed takes the contexts of the others along.
#ifndef PERIGEE_TESTS_DEVICE_PROCESS_GROUP_H_
#define PERIGEE_TESTS_DEVICE_PROCESS_GROUP_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "proto/local/unix_socket.h"
#include "tests/device/rank_process.h"
#include "tests/device/rank_wire.h"

namespace perigee {

using Answer = RankProcess::Answer;
// By rank, borrowed.
using Members = std::vector<RankProcess*>;

class ProcessGroupTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  bool on_device() const { return GetParam() == "cuda"; }
  // Bytes of the block beside each shard: large where only device memory is spent on it.
  uint64_t extra_bytes(uint64_t on_device_bytes) const {
    return on_device() ? on_device_bytes : uint64_t{1} << 20;
  }
  // Devices that the processes are on; 1 on the host backend.
  size_t devices() const { return devices_; }
  size_t DeviceOf(size_t index) const { return index % devices_; }
  // How much later than it should an event may be. PERIGEE_DEVICE_SLACK_MS, 40 unless set: two
  // turns of the time slices of eight processes.
  static double SlackMs();

  // `count` processes with their backends, at once; those of Form, in order.
  void Start(size_t count);
  // A new process in the place of one that has ended.
  void Replace(size_t index);
  Members All() const;
  Members AllBut(size_t index) const;

  // A group of these ranks at the next generation: new memory, mapped by all, and data paths.
  void Form(const Members& members, absl::Duration operation_timeout, uint64_t extra_bytes);
  RankCommand Command(RankVerb verb) const;
  // Tells all at once; by member.
  static std::vector<Answer> OnAll(const Members& members, const RankCommand& command);
  // The same, and all are OK.
  static std::vector<Answer> ExpectOk(const Members& members, const RankCommand& command);
  static double MostMs(const std::vector<Answer>& answers);

  // Free memory [devices], as a process sees it that has a context there and is in no group.
  std::vector<uint64_t> FreeBytes();
  // Waits until every device has so much free, [devices]; for how long.
  double AwaitFree(const std::vector<uint64_t>& free_bytes);

  // "MEASURED <test> devices=N <numbers>", one line of evidence.
  void Print(const std::string& numbers) const;

  std::vector<std::unique_ptr<RankProcess>> processes_;
  uint64_t generation_ = 0;
  Geometry geometry_;      // of the last group formed
  double mapping_ms_ = 0;  // of the member that took longest to map its peers' memory then

 private:
  std::vector<std::vector<FileDescriptor>> Allocate(const Members& members,
                                                    const RankCommand& command);

  std::unique_ptr<RankProcess> StartProcess(size_t device);
  // The process that watches a device's memory; started when it is first needed.
  RankProcess& Watcher(size_t device);

  size_t devices_ = 1;
  std::vector<std::unique_ptr<RankProcess>> watchers_;  // [devices], null: not needed yet
  std::string directory_;
  absl::optional<UnixListener> listener_;
};

std::string BackendCaseName(const testing::TestParamInfo<std::string>& info);

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_PROCESS_GROUP_H_
