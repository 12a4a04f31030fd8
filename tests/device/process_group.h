// The fixture of tests with a process for each rank, all on device 0, on any backend. The test's
// own process never uses CUDA: it forks the ranks and tells them what to do, so a test reads as a
// script. Descriptors go from each rank to the test, which passes them on to all ranks.
//
// Cases of backend "cuda" are skipped, saying why, where there is no device. Killing ranks needs a
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
  uint64_t FreeBytes(const Members& members) const;

  // "MEASURED <test> <numbers>", one line of evidence.
  static void Print(const std::string& numbers);

  std::vector<std::unique_ptr<RankProcess>> processes_;
  uint64_t generation_ = 0;
  Geometry geometry_;  // of the last group formed

 private:
  std::vector<std::vector<FileDescriptor>> Allocate(const Members& members,
                                                    const RankCommand& command);

  std::string directory_;
  absl::optional<UnixListener> listener_;
};

std::string BackendCaseName(const testing::TestParamInfo<std::string>& info);

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_PROCESS_GROUP_H_
