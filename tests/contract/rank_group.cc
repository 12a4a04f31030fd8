#include "tests/contract/rank_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/types/optional.h"
#include "kernels/common/check.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"
#include "tests/contract/device_array.h"

namespace perigee {
namespace {

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(T));
}

template <typename T>
std::vector<T> ReadArray(Backend& backend, const T* from, size_t size) {
  std::vector<T> values(size);
  const auto to = absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), size * sizeof(T));
  EXPECT_TRUE(backend.CopyOut(to, reinterpret_cast<const std::byte*>(from)).ok());
  return values;
}

template <typename T>
void WriteArray(Backend& backend, T* to, const std::vector<T>& values) {
  EXPECT_TRUE(backend.CopyIn(reinterpret_cast<std::byte*>(to), BytesOf(values)).ok());
}

template <typename T>
T* PointerOf(const absl::optional<DeviceArray<T>>& array) {
  return array ? array->data() : nullptr;
}

}  // namespace

RankGroup::RankGroup(const RankBackends& backends, const RankGroupOptions& options)
    : backends_(backends), options_(options) {
  const ShardLayout layout =
      ShardLayout::Create(options.geometry, options.hidden, options.rings.dispatch_slots);
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    const size_t bytes = options.own_mappings ? layout.words_bytes() : layout.size_bytes;
    auto shard = backend(rank).AllocateShared(bytes, PeerAccess::kReadWrite);
    PERIGEE_CHECK(shard.ok());
    shards_.push_back(*std::move(shard));
    if (!options.own_mappings) continue;
    auto rows = backend(rank).AllocateShared(std::max(layout.rows_bytes(), kHostGranularityBytes),
                                             PeerAccess::kReadWrite);
    PERIGEE_CHECK(rows.ok());
    shard_rows_.push_back(*std::move(rows));
  }
  if (options.sources) AllocateSources();
  MapShards();
}

void RankGroup::AllocateSources() {
  const SourceLayout layout = SourceLayout::Create(options_.geometry, options_.hidden);
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    auto source = backend(rank).AllocateShared(layout.size_bytes, PeerAccess::kReadOnly);
    PERIGEE_CHECK(source.ok());
    sources_.push_back(*std::move(source));
    const std::vector<std::byte> poison(layout.size_bytes, kPoison);
    EXPECT_TRUE(backend(rank).CopyIn(sources_.back()->data(), poison).ok());
  }
}

// Peers' for reading alone, where each rank maps for itself.
std::vector<std::byte*> RankGroup::MapSources(int32_t rank) {
  std::vector<std::byte*> mapped;
  for (int32_t peer = 0; peer < static_cast<int32_t>(sources_.size()); ++peer) {
    const Memory& source = *sources_[peer];
    if (peer == rank || !options_.own_mappings) {
      mapped.push_back(source.data());
      continue;
    }
    mappings_.push_back(MapFor(backend(rank), source, PeerAccess::kReadOnly));
    mapped.push_back(mappings_.back()->data());
  }
  return mapped;
}

void RankGroup::MapShards() {
  std::string rendezvous;
  if (backends_.transport() == Transport::kNccl) {
    absl::StatusOr<std::string> made = backend(0).NewRendezvous();
    if (!made.ok()) ADD_FAILURE() << made.status();
    PERIGEE_CHECK(made.ok());
    rendezvous = *std::move(made);
  }
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    DataPathOptions path;
    path.geometry = options_.geometry;
    path.hidden = options_.hidden;
    path.rank = RankId(rank);
    path.buffer = BufferId(3);
    path.generation = options_.generation;
    path.transport = backends_.transport();
    path.rendezvous = rendezvous;
    path.operation_timeout = options_.operation_timeout;
    path.warmup_timeout = options_.warmup_timeout;
    path.threads = options_.threads;
    path.intermediate = options_.intermediate;
    path.rings = options_.rings;
    for (int32_t peer = 0; peer < ranks(); ++peer) {
      const Memory& shard = *shards_[peer];
      if (peer == rank || !options_.own_mappings) {
        path.shards.push_back(shard.data());
        continue;
      }
      mappings_.push_back(MapFor(backend(rank), shard, PeerAccess::kReadWrite));
      path.shards.push_back(mappings_.back()->data());
    }
    for (int32_t peer = 0; peer < static_cast<int32_t>(shard_rows_.size()); ++peer) {
      const Memory& rows = *shard_rows_[peer];
      if (peer != rank) mappings_.push_back(MapFor(backend(rank), rows, PeerAccess::kReadWrite));
      path.shard_rows.push_back(peer == rank ? rows.data() : mappings_.back()->data());
    }
    path.sources = MapSources(rank);
    auto data_path = backend(rank).CreateDataPath(path);
    PERIGEE_CHECK(data_path.ok());
    paths_.push_back(*std::move(data_path));
  }
}

size_t RankGroup::row_elements() const {
  return static_cast<size_t>(geometry().logical_rows()) * options_.hidden;
}

std::vector<absl::Status> RankGroup::OnAll(const std::function<absl::Status(int32_t)>& body) {
  std::vector<absl::Status> statuses(ranks());
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void RankGroup::Poison(int32_t rank) {
  std::vector<std::byte> poison(row_elements() * sizeof(BFloat16), kPoison);
  EXPECT_TRUE(backend(rank).CopyIn(reinterpret_cast<std::byte*>(path(rank).rows()), poison).ok());
  poison.resize(geometry().logical_rows() * sizeof(float), kPoison);
  EXPECT_TRUE(
      backend(rank).CopyIn(reinterpret_cast<std::byte*>(path(rank).row_weights()), poison).ok());
}

std::vector<BFloat16> RankGroup::ReadRows(int32_t rank) {
  return ReadArray(backend(rank), path(rank).rows(), row_elements());
}

std::vector<float> RankGroup::ReadRowWeights(int32_t rank) {
  return ReadArray(backend(rank), path(rank).row_weights(), geometry().logical_rows());
}

DispatchResult RankGroup::RunDispatch(int32_t rank, Sequence sequence, const PlanPtr& plan,
                                      const RankInput& input, Copy copy) {
  Backend& on = backend(rank);
  const DeviceArray<BFloat16> hidden(on, input.hidden);
  const DeviceArray<int32_t> topk_experts(on, input.topk_experts);
  absl::optional<DeviceArray<float>> route_weights;
  if (!input.route_weights.empty()) route_weights.emplace(on, input.route_weights);
  absl::optional<DeviceArray<BFloat16>> rows;
  absl::optional<DeviceArray<float>> row_weights;
  if (copy == Copy::kCopied) {
    rows.emplace(on, row_elements());
    row_weights.emplace(on, geometry().logical_rows());
  }
  const DispatchInput in{hidden.data(), topk_experts.data(), PointerOf(route_weights),
                         input.token_count};
  const DispatchOutput out{PointerOf(rows), PointerOf(row_weights)};

  DispatchResult result;
  if (plan == nullptr) {
    absl::StatusOr<PlanPtr> made = path(rank).Dispatch(sequence, in, out);
    result.status = made.status();
    if (made.ok()) result.plan = *std::move(made);
  } else {
    result.status = path(rank).DispatchWithPlan(sequence, plan, in, out);
    result.plan = plan;
  }
  if (!result.status.ok()) return result;
  result.status = path(rank).Synchronize();
  const absl::StatusOr<PlanTensors> tensors = path(rank).ReadPlan(result.plan);
  EXPECT_TRUE(tensors.ok()) << tensors.status();
  if (tensors.ok()) result.tensors = *tensors;
  result.rows = rows ? rows->Get() : ReadRows(rank);
  result.row_weights = row_weights ? row_weights->Get() : ReadRowWeights(rank);
  return result;
}

std::vector<DispatchResult> RankGroup::Dispatch(const std::vector<RankInput>& inputs, Copy copy) {
  return DispatchWithPlan(std::vector<DispatchResult>(ranks()), inputs, copy);
}

std::vector<DispatchResult> RankGroup::DispatchWithPlan(const std::vector<DispatchResult>& made,
                                                        const std::vector<RankInput>& inputs,
                                                        Copy copy) {
  std::vector<DispatchResult> results(ranks());
  const Sequence sequence = NextSequence();
  for (int32_t rank = 0; rank < ranks(); ++rank) Poison(rank);
  OnAll([&](int32_t rank) {
    results[rank] = RunDispatch(rank, sequence, made[rank].plan, inputs[rank], copy);
    return results[rank].status;
  });
  return results;
}

CombineResult RankGroup::RunCombine(int32_t rank, Sequence sequence, const PlanPtr& plan,
                                    const std::vector<BFloat16>& rows,
                                    const std::vector<float>* row_weights, Copy copy) {
  Backend& on = backend(rank);
  DataPath& path = *paths_[rank];
  const DeviceArray<BFloat16> outside_rows(on, rows);
  absl::optional<DeviceArray<float>> outside_weights;
  absl::optional<DeviceArray<float>> route_weights;
  const DeviceArray<BFloat16> hidden(on, static_cast<size_t>(geometry().tokens) * options_.hidden);
  CombineInput input{outside_rows.data(), nullptr};
  if (row_weights != nullptr) {
    outside_weights.emplace(on, *row_weights);
    input.row_weights = outside_weights->data();
    route_weights.emplace(on, geometry().routes());
  }
  if (copy == Copy::kInPlace) {
    WriteArray(on, path.rows(), rows);
    input.rows = path.rows();
    if (row_weights != nullptr) {
      WriteArray(on, path.row_weights(), *row_weights);
      input.row_weights = path.row_weights();
    }
  }
  CombineResult result;
  result.status =
      path.Combine(sequence, plan, input, CombineOutput{hidden.data(), PointerOf(route_weights)});
  if (result.status.ok()) result.status = path.Synchronize();
  result.hidden = hidden.Get();
  if (route_weights) result.route_weights = route_weights->Get();
  return result;
}

std::vector<CombineResult> RankGroup::Combine(const std::vector<DispatchResult>& made,
                                              const std::vector<std::vector<BFloat16>>& rows,
                                              const std::vector<std::vector<float>>& row_weights,
                                              Copy copy) {
  std::vector<CombineResult> results(ranks());
  const Sequence sequence = NextSequence();
  OnAll([&](int32_t rank) {
    results[rank] = RunCombine(rank, sequence, made[rank].plan, rows[rank],
                               row_weights.empty() ? nullptr : &row_weights[rank], copy);
    return results[rank].status;
  });
  return results;
}

void ExpectOk(const std::vector<absl::Status>& statuses) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << "rank " << rank << ": " << statuses[rank];
  }
}

}  // namespace perigee
