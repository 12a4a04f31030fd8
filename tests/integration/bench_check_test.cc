// `perigee bench direct` holds the rows of each path against those of an ordinary dispatch: a path
// that does not write them is found, also where another path has left the same rows there before.
// Coordinator and workers run in this process, rank 0's on a data path whose producer writes
// nothing.
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/bench/bench_session.h"
#include "client/lib/client.h"
#include "gtest/gtest.h"
#include "kernels/direct_publication.h"
#include "kernels/host/host_backend.h"
#include "kernels/row_producer.h"
#include "server/coordinator.h"
#include "tests/contract/forwarding_backend.h"
#include "worker/testing/scratch_directory.h"
#include "worker/worker.h"

namespace perigee {
namespace {

// Its producer leaves the places of a target as they are.
class IdleProducerPath final : public DataPath, public RowProducer {
 public:
  explicit IdleProducerPath(std::unique_ptr<DataPath> path) : path_(std::move(path)) {}

  absl::Status Produce(const ProductInput& input, BFloat16* output) override {
    return path_->producer()->Produce(input, output);
  }
  absl::Status ProduceInto(const ProductInput&, const TargetPtr&) override {
    return absl::OkStatus();
  }
  RowProducer* producer() override { return this; }
  DirectPublication* publication() override { return path_->publication(); }
  OwnerSource* source() override { return path_->source(); }

  absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput& input,
                                   const DispatchOutput& output) override {
    return path_->Dispatch(sequence, input, output);
  }
  absl::Status DispatchWithPlan(Sequence sequence, const PlanPtr& plan, const DispatchInput& input,
                                const DispatchOutput& output) override {
    return path_->DispatchWithPlan(sequence, plan, input, output);
  }
  absl::Status PrefetchWeights(Sequence sequence, const PlanPtr& plan,
                               const ExpertWeights& weights) override {
    return path_->PrefetchWeights(sequence, plan, weights);
  }
  absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                          const RunExpertsInput& input) override {
    return path_->RunExperts(plan, weights, input);
  }
  absl::Status Combine(Sequence sequence, const PlanPtr& plan, const CombineInput& input,
                       const CombineOutput& output) override {
    return path_->Combine(sequence, plan, input, output);
  }
  absl::Status ReduceGradients(Sequence sequence, const PlanPtr& plan,
                               const ExpertGradients& gradients) override {
    return path_->ReduceGradients(sequence, plan, gradients);
  }
  absl::Status Barrier(Sequence sequence) override { return path_->Barrier(sequence); }
  absl::Status ProbeCopy(CopyProbe probe, int64_t rows) override {
    return path_->ProbeCopy(probe, rows);
  }
  absl::Status Decline(Sequence sequence) override { return path_->Decline(sequence); }
  absl::Status Synchronize() override { return path_->Synchronize(); }
  void Abort(int32_t lost_rank, const std::string& reason) override {
    path_->Abort(lost_rank, reason);
  }
  void RequestCancel(bool wanted) override { path_->RequestCancel(wanted); }
  absl::optional<ErrorRecord> last_error() const override { return path_->last_error(); }
  absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr& plan) const override {
    return path_->ReadPlan(plan);
  }
  BFloat16* rows() const override { return path_->rows(); }
  float* row_weights() const override { return path_->row_weights(); }

 private:
  const std::unique_ptr<DataPath> path_;
};

class IdleProducerBackend final : public ForwardingBackend {
 public:
  IdleProducerBackend() : IdleProducerBackend(CreateHostBackend()) {}

  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    absl::StatusOr<std::unique_ptr<DataPath>> path = ForwardingBackend::CreateDataPath(options);
    if (!path.ok()) return path;
    return std::make_unique<IdleProducerPath>(*std::move(path));
  }

 private:
  explicit IdleProducerBackend(std::unique_ptr<Backend> host)
      : ForwardingBackend(*host), host_(std::move(host)) {}

  const std::unique_ptr<Backend> host_;
};

class BenchCheckTest : public ::testing::TestWithParam<int32_t> {
 protected:
  // Of bench direct with so many inputs; rank 0's worker has this backend.
  absl::StatusOr<ShapeResult> Measure(std::unique_ptr<Backend> first) {
    CoordinatorOptions options;
    options.data_dir = directory_.path() + "/data";
    options.lease_duration = absl::Minutes(1);
    auto coordinator = Coordinator::Start(options);
    if (!coordinator.ok()) return coordinator.status();
    std::vector<std::unique_ptr<Worker>> workers;
    for (int32_t rank = 0; rank < 2; ++rank) {
      WorkerOptions worker;
      worker.name = absl::StrCat("w", rank);
      worker.host = "here";
      worker.coordinator = (*coordinator)->address();
      worker.socket_dir = directory_.path() + "/sockets";
      worker.backend = rank == 0 ? std::move(first) : CreateHostBackend();
      worker.register_timeout = absl::Minutes(1);
      auto started = Worker::Start(std::move(worker));
      if (!started.ok()) return started.status();
      workers.push_back(*std::move(started));
    }
    const auto client = Client::Connect({.address = (*coordinator)->address()});
    if (!client.ok()) return client.status();
    BenchOptions bench;
    bench.what = "direct";
    bench.depth = 16;
    bench.iterations = 1;
    bench.warmup = 0;
    bench.inputs = GetParam();
    bench.seed = 7;
    bench.routes.seed = bench.seed;
    BenchSession session(**client, bench, std::stop_token());
    if (absl::Status status = session.Create(); !status.ok()) return status;
    // Without duplicates: where there are some, a combine changes the rows that it leaves.
    return session.Measure(*ParseBenchShape("S20,H32,K1,E8,P4"));
  }

  ScratchDirectory directory_;
};

TEST_P(BenchCheckTest, PathsThatWriteTheirRowsPass) {
  const auto result = Measure(CreateHostBackend());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->checked_tokens, 2 * GetParam() * 20);
  EXPECT_EQ(result->mismatched_elements, 0);
}

TEST_P(BenchCheckTest, RowsThatWereNotWrittenAreFound) {
  const auto result = Measure(std::make_unique<IdleProducerBackend>());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->mismatched_elements, int64_t{2} * GetParam() * 20 * 32)
      << "all of rank 0's tokens, by both other ways, of each input";
}

INSTANTIATE_TEST_SUITE_P(Inputs, BenchCheckTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace perigee
