#include "tests/device/checked_rounds.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

constexpr std::byte kPoison{0xA5};
constexpr uint32_t kSalt = 1;

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(T));
}

template <typename T>
absl::StatusOr<std::vector<T>> Read(Backend& backend, const void* from, size_t size) {
  std::vector<T> values(size);
  const auto to = absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), size * sizeof(T));
  absl::Status status = backend.CopyOut(to, static_cast<const std::byte*>(from));
  if (!status.ok()) return status;
  return values;
}

template <typename T>
absl::Status UploadTo(Backend& backend, const std::vector<T>& values,
                      std::unique_ptr<Memory>& memory) {
  const absl::Span<const std::byte> bytes = BytesOf(values);
  absl::StatusOr<std::unique_ptr<Memory>> allocated = backend.AllocatePrivate(bytes.size());
  if (!allocated.ok()) return allocated.status();
  memory = *std::move(allocated);
  return backend.CopyIn(memory->data(), bytes);
}

absl::Status Poison(Backend& backend, const Memory& memory) {
  return backend.CopyIn(memory.data(), std::vector<std::byte>(memory.size_bytes(), kPoison));
}

// Named weights, and rows of numbers: sums of arbitrary bits would be NaN and compare with nothing.
std::vector<RankInput> MakeInputs(const RoundsShape& shape, const GroupInput& group,
                                  std::mt19937_64& random) {
  std::vector<RankInput> inputs = NamedInputs(group, shape.hidden, kSalt);
  for (RankInput& input : inputs) input.hidden = RandomNumbers(random, input.hidden.size());
  return inputs;
}

// [NvS, H] of one rank; rows that no route has are 0.
std::vector<BFloat16> RowsOf(const RoundsShape& shape, const std::vector<RowSource>& sources,
                             const std::vector<RankInput>& inputs) {
  std::vector<BFloat16> rows(sources.size() * shape.hidden);
  for (size_t row = 0; row < sources.size(); ++row) {
    const RowSource& source = sources[row];
    if (source.kind != RowSource::Kind::kRoute) continue;
    const auto from =
        inputs[source.rank].hidden.begin() + static_cast<size_t>(source.token) * shape.hidden;
    std::copy_n(from, shape.hidden, rows.begin() + row * shape.hidden);
  }
  return rows;
}

}  // namespace

CheckedRounds::CheckedRounds(Backend& backend, const RoundsShape& shape, int32_t rank)
    : backend_(backend), shape_(shape), rank_(rank) {}

absl::StatusOr<std::unique_ptr<CheckedRounds>> CheckedRounds::Create(Backend& backend,
                                                                     const RoundsShape& shape,
                                                                     int32_t rank) {
  std::unique_ptr<CheckedRounds> rounds(new CheckedRounds(backend, shape, rank));
  std::mt19937_64 random(shape.seed);
  const GroupInput group = PlainGroup(random, shape.geometry);
  const std::vector<RankInput> inputs = MakeInputs(shape, group, random);
  const ReferencePlan plan = PlanByTheRules(group);

  std::vector<std::vector<double>> values;
  for (int32_t peer = 0; peer < shape.geometry.ranks; ++peer) {
    const std::vector<RowSource> sources = RowSourcesOf(shape.geometry, plan, peer);
    std::vector<BFloat16> rows = RowsOf(shape, sources, inputs);
    values.push_back(ValuesOf(rows));
    if (peer != rank) continue;
    rounds->sources_ = sources;
    rounds->expected_rows_ = std::move(rows);
  }
  for (const RowSource& source : rounds->sources_) {
    const bool is_route = source.kind == RowSource::Kind::kRoute;
    rounds->expected_row_weights_.push_back(
        is_route ? NamedWeight(source.rank, source.token, source.k, kSalt) : 0.0f);
  }
  const auto sums = CombineByTheRules(shape.geometry, shape.hidden, plan, values);
  for (double value : sums[rank]) rounds->expected_hidden_.push_back(Bits(value));
  rounds->expected_route_weights_ = inputs[rank].route_weights;
  absl::Status status = rounds->Upload(inputs[rank]);
  if (!status.ok()) return status;
  return rounds;
}

absl::Status CheckedRounds::Upload(const RankInput& input) {
  absl::Status status = UploadTo(backend_, input.hidden, hidden_);
  if (status.ok()) status = UploadTo(backend_, input.topk_experts, routes_);
  if (status.ok()) status = UploadTo(backend_, input.route_weights, weights_);
  if (status.ok()) status = UploadTo(backend_, expected_hidden_, out_hidden_);
  if (status.ok()) status = UploadTo(backend_, expected_route_weights_, out_route_weights_);
  return status;
}

absl::Status CheckedRounds::RunChecked(DataPath& path) {
  absl::Status status = PoisonOutput();
  if (!status.ok()) return status;
  const absl::StatusOr<PlanPtr> plan = QueueDispatch(path);
  // Also after a refusal: what is queued must end.
  status = path.Synchronize();
  if (!plan.ok()) return plan.status();
  if (!status.ok()) return status;
  if (status = CheckRows(path); !status.ok()) return status;
  const absl::Status queued = QueueCombine(path, *plan);
  status = path.Synchronize();
  if (!queued.ok()) return queued;
  return status.ok() ? CheckOutput() : status;
}

absl::Status CheckedRounds::Run(DataPath& path, int32_t ahead) {
  absl::Status queued = PoisonOutput();
  for (int32_t round = 0; round < ahead && queued.ok(); ++round) {
    const absl::StatusOr<PlanPtr> plan = QueueDispatch(path);
    queued = plan.ok() ? QueueCombine(path, *plan) : plan.status();
  }
  const absl::Status ended = path.Synchronize();
  // What ended first is the cause of what was then refused.
  if (!ended.ok()) return ended;
  return queued.ok() ? CheckOutput() : queued;
}

absl::Status CheckedRounds::Dispatch(DataPath& path) {
  const absl::StatusOr<PlanPtr> plan = QueueDispatch(path);
  const absl::Status ended = path.Synchronize();
  return plan.ok() ? ended : plan.status();
}

absl::StatusOr<PlanPtr> CheckedRounds::QueueDispatch(DataPath& path) {
  last_ = last_.Next();
  DispatchInput input;
  input.hidden = reinterpret_cast<const BFloat16*>(hidden_->data());
  input.topk_experts = reinterpret_cast<const int32_t*>(routes_->data());
  input.route_weights = reinterpret_cast<const float*>(weights_->data());
  input.token_count = shape_.geometry.tokens;
  return path.Dispatch(last_, input, {});
}

absl::Status CheckedRounds::QueueCombine(DataPath& path, const PlanPtr& plan) {
  last_ = last_.Next();
  return path.Combine(last_, plan, {path.rows(), path.row_weights()},
                      {reinterpret_cast<BFloat16*>(out_hidden_->data()),
                       reinterpret_cast<float*>(out_route_weights_->data())});
}

absl::Status CheckedRounds::PoisonOutput() {
  absl::Status status = Poison(backend_, *out_hidden_);
  return status.ok() ? Poison(backend_, *out_route_weights_) : status;
}

absl::Status CheckedRounds::CheckRows(const DataPath& path) const {
  const auto rows = Read<BFloat16>(backend_, path.rows(), expected_rows_.size());
  if (!rows.ok()) return rows.status();
  const auto weights = Read<float>(backend_, path.row_weights(), expected_row_weights_.size());
  if (!weights.ok()) return weights.status();
  for (size_t row = 0; row < sources_.size(); ++row) {
    if (sources_[row].kind == RowSource::Kind::kUndefined) continue;
    const size_t first = row * shape_.hidden;
    const auto expected = expected_rows_.begin() + static_cast<std::ptrdiff_t>(first);
    if (!std::equal(expected, expected + shape_.hidden,
                    rows->begin() + static_cast<std::ptrdiff_t>(first))) {
      return absl::InternalError(
          absl::StrCat("row ", row, " of rank ", rank_, " is not what the plan puts there"));
    }
    if ((*weights)[row] != expected_row_weights_[row]) {
      return absl::InternalError(absl::StrCat("weight of row ", row, " of rank ", rank_, " is ",
                                              (*weights)[row], ", expected ",
                                              expected_row_weights_[row]));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckedRounds::CheckOutput() const {
  const auto hidden = Read<BFloat16>(backend_, out_hidden_->data(), expected_hidden_.size());
  if (!hidden.ok()) return hidden.status();
  const auto weights =
      Read<float>(backend_, out_route_weights_->data(), expected_route_weights_.size());
  if (!weights.ok()) return weights.status();
  const auto differing =
      std::mismatch(expected_hidden_.begin(), expected_hidden_.end(), hidden->begin());
  if (differing.first != expected_hidden_.end()) {
    const auto at = static_cast<int32_t>(differing.first - expected_hidden_.begin());
    return absl::InternalError(
        absl::StrCat("sequence ", last_.value, ": token ", at / shape_.hidden, " of rank ", rank_,
                     " is ", ToFloat(*differing.second), " in column ", at % shape_.hidden,
                     ", expected ", ToFloat(*differing.first)));
  }
  if (*weights != expected_route_weights_) {
    return absl::InternalError(absl::StrCat("sequence ", last_.value, ": route weights of rank ",
                                            rank_, " did not come back as they were sent"));
  }
  return absl::OkStatus();
}

}  // namespace perigee
