// The paths of BenchSession.
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/bench/bench_data.h"
#include "client/cli/bench/bench_session.h"
#include "client/cli/bench/bench_tensor.h"
#include "client/cli/bench/path_programs.h"
#include "client/lib/tensor.h"

namespace perigee {
namespace {

// Of DeriveSeed.
constexpr uint64_t kFactorTensor = 4000;
constexpr uint64_t kMatrixTensor = 5000;
constexpr uint16_t kPoisonBits = 0x7fff;  // no number

// Elements that differ.
absl::StatusOr<int64_t> CountDifferences(const Tensor& some, const Tensor& others) {
  if (some.shape != others.shape || some.data.size() != others.data.size()) {
    return absl::InternalError(absl::StrCat("outputs of two paths are ",
                                            DescribeTensor(some.dtype, some.shape), " and ",
                                            DescribeTensor(others.dtype, others.shape)));
  }
  int64_t different = 0;
  for (size_t i = 0; i < some.data.size(); i += sizeof(BFloat16)) {
    different += std::memcmp(some.data.data() + i, others.data.data() + i, sizeof(BFloat16)) != 0;
  }
  return different;
}

}  // namespace

absl::Status BenchSession::WriteFactors(const Bench& bench, RankTensors& tensors) const {
  const int64_t depth = options_.depth;
  const int64_t hidden = bench.shape.hidden;
  const std::vector<BFloat16> matrix =
      RandomBFloat16(DeriveSeed(options_.seed, kMatrixTensor, 0),
                     static_cast<size_t>(depth * hidden), 1 / std::sqrt(static_cast<float>(depth)));
  const std::vector<BFloat16> poison(static_cast<size_t>(bench.shape.tokens * hidden),
                                     BFloat16{kPoisonBits});
  return tensors.ForEachRank([&](RankId rank) {
    absl::Status status = tensors.Write(
        rank, kBenchPoison,
        View<BFloat16>(v1::TENSOR_DTYPE_BFLOAT16, {bench.shape.tokens, hidden}, poison));
    if (!status.ok()) return status;
    status = tensors.Write(rank, kBenchMatrix,
                           View<BFloat16>(v1::TENSOR_DTYPE_BFLOAT16, {depth, hidden}, matrix));
    for (int32_t input = 0; input < options_.inputs && status.ok(); ++input) {
      const std::vector<BFloat16> factor =
          RandomBFloat16(DeriveSeed(options_.seed, kFactorTensor + input, rank.value),
                         static_cast<size_t>(bench.shape.tokens) * depth, 1);
      status = tensors.Write(
          rank, BenchFactor(input),
          View<BFloat16>(v1::TENSOR_DTYPE_BFLOAT16, {bench.shape.tokens, depth}, factor));
    }
    return status;
  });
}

absl::Status BenchSession::MeasureDirect(Bench& bench, RankTensors& tensors) {
  absl::Status status = WriteFactors(bench, tensors);
  if (!status.ok()) return status;
  for (const ProducerPath path : kProducerPaths) {
    const BenchProgram program = ProducerProgram(path, options_.inputs);
    const auto times_ns = Execute(bench, program);
    if (!times_ns.ok()) return times_ns.status();
    for (size_t i = 0; i < program.timed.size(); ++i) {
      // Both ways of direct publication have the same producer.
      if (i > 0 && path == ProducerPath::kDirectOverlapped) continue;
      Add(bench, program.timed[i].name, (*times_ns)[i], absl::nullopt);
    }
  }
  for (const ProducerPath path : kProducerPaths) {
    const BackToBackProgram program = BackToBackProducer(path, options_.inputs);
    const auto times_ns = Execute(bench, program);
    if (!times_ns.ok()) return times_ns.status();
    Add(bench, program.name, *times_ns, absl::nullopt);
  }
  return CheckPaths(bench, tensors);
}

absl::Status BenchSession::CheckPaths(Bench& bench, RankTensors& tensors) {
  for (const ProducerPath path : kProducerPaths) {
    const auto monitor = Run(bench, ProducerCombineProgram(path, options_.inputs));
    if (!monitor.ok()) return monitor.status();
  }
  for (int32_t input = 0; input < options_.inputs; ++input) {
    const std::string ordinary = PathOutput(ProducerPath::kOrdinary, input);
    for (const ProducerPath path : {ProducerPath::kDirect, ProducerPath::kDirectOverlapped}) {
      absl::Status status = Compare(bench, tensors, ordinary, PathOutput(path, input));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// All that is combined of rank 0, after the ordinary path and after another.
absl::Status BenchSession::Compare(Bench& bench, RankTensors& tensors, const std::string& ordinary,
                                   const std::string& other) {
  const auto wanted = tensors.Read(RankId(0), ordinary);
  if (!wanted.ok()) return wanted.status();
  const auto output = tensors.Read(RankId(0), other);
  if (!output.ok()) return output.status();
  const absl::StatusOr<int64_t> different = CountDifferences(*output, *wanted);
  if (!different.ok()) return different.status();
  bench.result.checked_tokens += bench.shape.tokens;
  bench.result.mismatched_elements += *different;
  return absl::OkStatus();
}

absl::Status BenchSession::MeasurePull(Bench& bench, RankTensors& tensors) {
  // Also: the last input's rows lie in the source shards from here on.
  if (const auto stored = Run(bench, PullCombineProgram(options_.inputs)); !stored.ok()) {
    return stored.status();
  }
  for (const BenchProgram& program :
       {DispatchProgram(options_.inputs), PullProgram(options_.inputs)}) {
    const auto times_ns = Execute(bench, program);
    if (!times_ns.ok()) return times_ns.status();
    for (size_t i = 0; i < program.timed.size(); ++i) {
      Add(bench, program.timed[i].name, (*times_ns)[i], absl::nullopt);
    }
  }
  for (const BackToBackProgram& program :
       {BackToBackDispatch(options_.inputs), BackToBackPull(options_.inputs)}) {
    const auto times_ns = Execute(bench, program);
    if (!times_ns.ok()) return times_ns.status();
    Add(bench, program.name, *times_ns, absl::nullopt);
  }
  return CheckPulled(bench, tensors);
}

absl::Status BenchSession::CheckPulled(Bench& bench, RankTensors& tensors) {
  const auto combined = Run(bench, CombineProgram(options_.inputs).program);
  if (!combined.ok()) return combined.status();
  for (int32_t input = 0; input < options_.inputs; ++input) {
    absl::Status status = Compare(bench, tensors, BenchOutput(input), PullOutput(input));
    if (!status.ok()) return status;
  }
  return CheckOutputs(bench, tensors);
}

}  // namespace perigee
