#include "tests/contract/staged_host_backend.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/algo/rows.h"
#include "kernels/common/shared_words.h"
#include "kernels/host/host_backend.h"
#include "kernels/host/host_rank.h"
#include "kernels/host/run_experts.h"
#include "kernels/host/sum_rows.h"
#include "kernels/staged/staged_data_path.h"
#include "tests/contract/forwarding_backend.h"
#include "tests/contract/local_exchange.h"

namespace perigee {
namespace {

template <typename T>
T* At(const Indexed<T>& list, int64_t i, int64_t width) {
  return list.data + (list.index == nullptr ? i : list.index[i]) * width;
}

class HostStagedDevice final : public StagedDevice {
 public:
  HostStagedDevice(Backend& backend, const DataPathOptions& options)
      : backend_(backend),
        rank_{MakeRankShape(options), nullptr, nullptr},
        progress_(
            {options.rank, options.generation, options.operation_timeout, options.warmup_timeout}) {
    rank_.pool = std::make_unique<ThreadPool>(options.threads);
    // For run_experts alone, which waits for nobody.
    CollectiveOptions collective;
    collective.rank = options.rank;
    collective.buffer = options.buffer;
    collective.generation = options.generation;
    collective.shards = rank_.shards;
    rank_.collective = std::make_unique<Collective>(std::move(collective));
  }

  RankShape& shape() override { return rank_; }
  Progress& progress() override { return progress_; }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(size_t size_bytes) override {
    return backend_.AllocatePrivate(size_bytes);
  }
  absl::Status Read(absl::Span<std::byte> to, const std::byte* from) override {
    return backend_.CopyOut(to, from);
  }
  absl::Status Write(std::byte* to, absl::Span<const std::byte> from) override {
    return backend_.CopyIn(to, from);
  }
  absl::Status CheckAddress(const char*, const void*) override { return absl::OkStatus(); }

  absl::Status CopyRows(const Indexed<BFloat16>& to, const Indexed<const BFloat16>& from,
                        int64_t count) override {
    Copy(to, from, count, rank_.hidden);
    return absl::OkStatus();
  }
  absl::Status CopyFloats(const Indexed<float>& to, const Indexed<const float>& from,
                          int64_t count) override {
    Copy(to, from, count, 1);
    return absl::OkStatus();
  }
  absl::Status SumRows(const RowSums& sums) override {
    for (int32_t i = 0; i < sums.count; ++i) {
      std::vector<const BFloat16*> terms;
      for (int32_t j = i == 0 ? 0 : sums.ends[i - 1]; j < sums.ends[i]; ++j) {
        terms.push_back(RowAt(sums.from, sums.rows[j], rank_.hidden));
      }
      BFloat16* const to = At(sums.to, i, rank_.hidden);
      if (terms.empty()) {
        ZeroRows(to, 1, rank_.hidden);
      } else {
        HostSumRows(terms.data(), static_cast<int32_t>(terms.size()), rank_.hidden, to);
      }
    }
    return absl::OkStatus();
  }
  absl::Status AddFloats(float* to, const float* from, int64_t count) override {
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    return absl::OkStatus();
  }
  absl::Status Wait() override { return absl::OkStatus(); }

  absl::StatusOr<PlanPtr> MakePlan(Sequence sequence, int32_t token_count,
                                   const GroupPlan& plan) override {
    const auto dst = plan.dst_of(rank_.rank);
    return PlanPtr(std::make_shared<const HostPlan>(
        rank_.TagOf(sequence), rank_.rank, token_count, plan.placement,
        std::vector<int32_t>(dst.begin(), dst.end()), plan.duplicates[rank_.rank.value]));
  }
  absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                          const RunExpertsInput& input) override {
    return HostRunExperts(rank_, plan, weights, input);
  }
  void Abort(int32_t lost_rank, const std::string& reason) override {
    rank_.collective->Abort(lost_rank, reason);
  }

 private:
  template <typename T>
  static void Copy(const Indexed<T>& to, const Indexed<const T>& from, int64_t count,
                   int64_t width) {
    for (int64_t i = 0; i < count; ++i) {
      if (from.data == nullptr) {
        std::fill_n(At(to, i, width), width, T());
      } else {
        std::copy_n(At(from, i, width), width, At(to, i, width));
      }
    }
  }

  Backend& backend_;
  HostRank rank_;
  Progress progress_;
};

class StagedHostBackend final : public ForwardingBackend {
 public:
  explicit StagedHostBackend(std::unique_ptr<Backend> host)
      : ForwardingBackend(*host), host_(std::move(host)) {}

  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    absl::Status status = CheckDataPathOptions(options, kHostGranularityBytes);
    if (!status.ok()) return status;
    auto device = std::make_unique<HostStagedDevice>(backend(), options);
    const RankShape& shape = device->shape();
    const PeerWords words = LoadShared(shape.own().control->peers[shape.rank.value]);
    if (status = CheckFreshShard(shape, words.arrival); !status.ok()) return status;
    auto exchange = MakeLocalExchange(options.rendezvous, options.rank.value,
                                      {[this](absl::Span<std::byte> to, const std::byte* from) {
                                         return backend().CopyOut(to, from);
                                       },
                                       [this](std::byte* to, absl::Span<const std::byte> from) {
                                         return backend().CopyIn(to, from);
                                       },
                                       [] { return absl::OkStatus(); }});
    return CreateStagedDataPath(std::move(device), std::move(exchange));
  }
  absl::StatusOr<std::string> NewRendezvous() override { return NewLocalRendezvous(); }

 private:
  const std::unique_ptr<Backend> host_;
};

}  // namespace

std::unique_ptr<Backend> MakeStagedHostBackend(std::unique_ptr<Backend> host) {
  if (host == nullptr) host = CreateHostBackend();
  return std::make_unique<StagedHostBackend>(std::move(host));
}

}  // namespace perigee
