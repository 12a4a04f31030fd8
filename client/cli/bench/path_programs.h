// The programs of `perigee bench direct` and `pull`: rows up to where a dispatch has left them, by
// each way there is. Those of `direct` begin with the rows' producer, those of `pull` with rows
// that are there.
#ifndef PERIGEE_CLIENT_CLI_BENCH_PATH_PROGRAMS_H_
#define PERIGEE_CLIENT_CLI_BENCH_PATH_PROGRAMS_H_

#include <array>
#include <cstdint>
#include <string>

#include "client/cli/bench/bench_program.h"

namespace perigee {

enum class ProducerPath {
  // Into memory of the rank, and dispatched from there.
  kOrdinary,
  // Straight to their places; all that is not rows is sent behind it.
  kDirect,
  // The same, sent beside it.
  kDirectOverlapped,
};
inline constexpr std::array<ProducerPath, 3> kProducerPaths = {
    ProducerPath::kOrdinary, ProducerPath::kDirect, ProducerPath::kDirectOverlapped};

// "produce_dispatch", "direct" or "direct_overlapped": the name of its figure.
const char* PathFigure(ProducerPath path);

// Names on the workers: of the product's factors, the first by input; of what is combined of rows
// that went by a path.
std::string BenchFactor(int32_t input);
inline constexpr char kBenchMatrix[] = "matrix";
// Rows that no producer makes, [S, H].
inline constexpr char kBenchPoison[] = "poison";
std::string PathOutput(ProducerPath path, int32_t input);

// The whole path of each input behind a barrier, and its producer by itself ("produce" or
// "produce_direct").
BenchProgram ProducerProgram(ProducerPath path, int32_t inputs);
// As BackToBackDispatch.
BackToBackProgram BackToBackProducer(ProducerPath path, int32_t inputs);
// Each input once, and combined. Before each kBenchPoison is dispatched to the same places: what a
// path does not write is seen then, and not the same row as another path has left there.
v1::Program ProducerCombineProgram(ProducerPath path, int32_t inputs);

// Each input's routes, its rows in the source shards already: prepare_source and materialise, which
// are the figures' names, and both as "pull".
BenchProgram PullProgram(int32_t inputs);
BackToBackProgram BackToBackPull(int32_t inputs);
// Each input once, its rows and weights stored in the source shards first, and combined.
v1::Program PullCombineProgram(int32_t inputs);
std::string PullOutput(int32_t input);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_PATH_PROGRAMS_H_
