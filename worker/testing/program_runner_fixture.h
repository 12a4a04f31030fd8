// Tests of the program runner: one rank, on a data path that does as it is told.
#ifndef PERIGEE_WORKER_TESTING_PROGRAM_RUNNER_FIXTURE_H_
#define PERIGEE_WORKER_TESTING_PROGRAM_RUNNER_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "worker/ops/program_runner.h"
#include "worker/testing/fake_backend.h"

namespace perigee {

inline constexpr char kDispatch[] =
    R"(operations { dispatch { hidden: "x" topk_experts: "t" route_weights: "w" plan: "p" } })";
inline constexpr char kPrefetch[] =
    R"(operations { prefetch_weights { plan: "p" layer: 1 weights_version: 3 } })";
inline constexpr char kExperts[] =
    R"(operations { run_experts { plan: "p" layer: 1 weights_version: 3 } })";
inline constexpr char kCombine[] = R"(operations { combine { plan: "p" output: "y" } })";
inline constexpr char kBarrier[] = "operations { barrier {} }";

inline std::string Layer() { return absl::StrCat(kDispatch, kPrefetch, kExperts, kCombine); }

// One rank of one, on a data path that does as it is told.
class ProgramRunnerTest : public ::testing::Test {
 protected:
  ProgramRunnerTest() {
    shape_.geometry = Geometry{1, 2, 4, 2, 1, 1};
    shape_.hidden = 8;
    shape_.intermediate = 8;
    shape_.layers = 2;
    memory_ = *BufferMemory::Allocate(backend_, shape_, RankId(0));
    DataPathOptions options;
    options.geometry = shape_.geometry;
    options.hidden = shape_.hidden;
    options.rank = RankId(0);
    options.buffer = BufferId(3);
    options.generation = Generation(7);
    path_ = std::make_unique<FakeDataPath>(options);
    Write("x", v1::TENSOR_DTYPE_BFLOAT16, {3, 8});
    Write("t", v1::TENSOR_DTYPE_INT32, {3, 2});
    Write("w", v1::TENSOR_DTYPE_FLOAT32, {3, 2});
  }

  void Write(const std::string& name, v1::TensorDtype dtype, std::vector<int64_t> shape) {
    ASSERT_TRUE(tensors_.Put(name, *tensors_.Allocate(MakeTensorSpec(dtype, shape))).ok());
  }

  ProgramOutcome Run(const std::string& text, uint64_t first_sequence = 1) {
    ProgramOrder order;
    order.program_id = 5;
    order.first_sequence = Sequence(first_sequence);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &order.program)) << text;
    order.progress_interval = interval_;
    const ProgramSite site{shape_,   *path_,  *memory_, objects_,
                           tensors_, ledger_, nullptr,  transport_};
    return ProgramRunner(group_, site, order, clock_, events_).Run();
  }
  // The operation of this name, or all for "", ends like this.
  void Fail(const std::string& name, FakeDataPath::Outcome outcome) {
    path_->set_behaviour([=](const std::string& operation, Sequence) {
      return operation == name ? outcome : FakeDataPath::Outcome();
    });
  }
  FakeDataPath::Outcome Leave(AbortReason reason, Operation operation, uint64_t sequence) {
    return path_->LeaveEarly(reason, operation, Sequence(sequence));
  }

  const GroupView group_{"tenants/t/groups/g", Generation(7), RankId(0), {"workers/a"}};
  BufferShape shape_;
  FakeBackend backend_;
  ByteBudget budget_{1 << 20};
  std::unique_ptr<BufferMemory> memory_;
  std::unique_ptr<FakeDataPath> path_;
  BufferObjects objects_{"tenants/t/groups/g/buffers/b", BufferId(3), Generation(7)};
  TensorStore tensors_{backend_, budget_};
  TokenLedger* ledger_ = nullptr;
  Transport transport_ = Transport::kNvlink;
  FakeClock clock_;
  absl::Duration interval_;
  ProgramEvents events_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_PROGRAM_RUNNER_FIXTURE_H_
