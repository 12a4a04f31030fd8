#include "client/cli/doctor/machine_checks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kGib = uint64_t{1} << 30;

MachineFacts Healthy() {
  MachineFacts facts;
  facts.total_bytes = 64 * kGib;
  facts.available_bytes = 32 * kGib;
  facts.shm = SharedMemoryFolder{8 * kGib, 8 * kGib};
  facts.descriptors = 1024;
  facts.most_descriptors = 1048576;
  facts.cpus = 16;
  return facts;
}

Finding Check(const MachineFacts& facts, const std::string& name, int32_t ranks = 8,
              bool cuda = true) {
  for (const Finding& finding : CheckMachine(facts, ranks, cuda)) {
    if (finding.name == name) return finding;
  }
  return {.name = "none"};
}

void ExpectState(const Finding& finding, FindingState state, const char* found,
                 const char* remedy) {
  EXPECT_EQ(finding.state, state) << finding.name << ": " << finding.found;
  EXPECT_THAT(finding.found, HasSubstr(found));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
}

TEST(MachineChecksTest, AHealthyMachineIsOk) {
  for (const Finding& finding : CheckMachine(Healthy(), 8, true)) {
    EXPECT_EQ(finding.state, FindingState::kOk) << finding.name << ": " << finding.found;
    EXPECT_THAT(finding.remedy, IsEmpty());
  }
}

TEST(MachineChecksTest, ThisMachineIsRead) {
  const MachineFacts facts = GatherMachineFacts();
  EXPECT_GT(facts.total_bytes, 0u);
  EXPECT_LE(facts.available_bytes, facts.total_bytes);
  EXPECT_GE(facts.cpus, 1);
}

TEST(MachineChecksTest, MemoryIsHeldAgainstTheWorkers) {
  MachineFacts facts = Healthy();
  facts.available_bytes = 4 * kGib;
  ExpectState(Check(facts, "memory"), FindingState::kWarn, "4.00 GiB available of 64.00 GiB", "ps");
  EXPECT_EQ(Check(facts, "memory", 4).state, FindingState::kOk);
  facts.available_bytes = kGib / 4;
  ExpectState(Check(facts, "memory"), FindingState::kFail, "256.00 MiB", "perigee estimate");
}

TEST(MachineChecksTest, ATighterControlGroupCounts) {
  MachineFacts facts = Healthy();
  facts.group.memory_bytes = kGib;
  facts.group.free_bytes = kGib / 8;
  facts.group.cpus = 1.5;
  ExpectState(Check(facts, "memory"), FindingState::kFail, "1.00 GiB, the control group's limit",
              "memory.max");
  ExpectState(Check(facts, "cpus", 2), FindingState::kWarn, "1.5 CPUs for 2 workers", "cpu.max");
  EXPECT_THAT(Check(facts, "cpus", 2).remedy, HasSubstr("start 1 worker at most"));
  facts.group.free_bytes = 60 * kGib;
  EXPECT_EQ(Check(facts, "memory").state, FindingState::kOk);
}

TEST(MachineChecksTest, SharedMemoryFilesAreForCudaOnly) {
  MachineFacts facts = Healthy();
  facts.shm->free_bytes = 1 << 20;
  ExpectState(Check(facts, "shm"), FindingState::kWarn, "1.00 MiB free of 8.00 GiB", "--shm-size");
  ExpectState(Check(facts, "shm", 8, false), FindingState::kOk, "workers do not need it", "");
  facts.shm.reset();
  ExpectState(Check(facts, "shm"), FindingState::kWarn, "is not there", "mount -t tmpfs");
  EXPECT_EQ(Check(facts, "shm", 8, false).state, FindingState::kOk);
}

TEST(MachineChecksTest, DescriptorsAreNeededForPartsAndPeers) {
  MachineFacts facts = Healthy();
  facts.most_descriptors = 1024;
  ExpectState(Check(facts, "descriptors"), FindingState::kWarn, "hard limit 1024", "ulimit -n");
  facts.descriptors = 260;
  EXPECT_EQ(Check(facts, "descriptors", 4).state, FindingState::kWarn);
  EXPECT_EQ(Check(facts, "descriptors", 5).state, FindingState::kFail);
  facts.descriptors.reset();
  facts.most_descriptors.reset();
  ExpectState(Check(facts, "descriptors"), FindingState::kOk, "hard limit unlimited", "");
}

TEST(MachineChecksTest, LockedMemoryIsForCudaOnly) {
  MachineFacts facts = Healthy();
  facts.locked_bytes = 65536;
  ExpectState(Check(facts, "locked_memory"), FindingState::kWarn, "64.00 KiB", "ulimit -l");
  EXPECT_EQ(Check(facts, "locked_memory", 8, false).name, "none");
  facts.locked_bytes = 8 << 20;
  EXPECT_EQ(Check(facts, "locked_memory").state, FindingState::kOk);
}

TEST(MachineChecksTest, AWorkerWantsACpu) {
  ExpectState(Check(Healthy(), "cpus", 17), FindingState::kWarn, "16 CPUs for 17 workers",
              "start 16 workers at most");
  EXPECT_EQ(Check(Healthy(), "cpus", 16).state, FindingState::kOk);
}

}  // namespace
}  // namespace perigee
