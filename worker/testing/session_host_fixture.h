// Tests of sessions on the host backend: a real data path over memory that was exchanged through
// the sockets, the ranks as threads of this process, with a small layer loaded.
#ifndef PERIGEE_WORKER_TESTING_SESSION_HOST_FIXTURE_H_
#define PERIGEE_WORKER_TESTING_SESSION_HOST_FIXTURE_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "worker/testing/session_group.h"
#include "worker/testing/small_layer.h"

namespace perigee {

inline constexpr int32_t kRanks = 3;

inline uint64_t Seed() {
  const char* given = std::getenv("PERIGEE_SEED");
  return given ? std::strtoull(given, nullptr, 0) : std::random_device()();
}

class SessionHostTest : public ::testing::Test {
 protected:
  explicit SessionHostTest(bool source_storage = false)
      : seed_(Seed()),
        layer_(kRanks, seed_),
        group_(kRanks, [](int32_t) { return CreateHostBackend(); }) {
    SCOPED_TRACE(testing::Message() << "PERIGEE_SEED=" << seed_);
    v1::BufferShape shape = layer_.shape();
    shape.set_source_storage(source_storage);
    group_.MakeBuffer(shape);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      Load(rank, layer_.Inputs(rank));
      Load(rank, layer_.Weights(rank));
    }
  }

  void Load(int32_t rank, const std::vector<LayerTensor>& tensors) { Load(group_, rank, tensors); }
  static void Load(SessionGroup& group, int32_t rank, const std::vector<LayerTensor>& tensors) {
    for (const LayerTensor& tensor : tensors) {
      const auto* bytes = reinterpret_cast<const std::byte*>(tensor.bytes.data());
      const absl::Status status = group.Write(rank, tensor.target, tensor.header,
                                              absl::MakeConstSpan(bytes, tensor.bytes.size()));
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  void ExpectLayerIsRight() { ExpectLayerIsRight(group_); }
  void ExpectLayerIsRight(SessionGroup& group) {
    SCOPED_TRACE(testing::Message() << "PERIGEE_SEED=" << seed_);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const std::vector<double> output = BFloat16Values(*group.Read(rank, NamedTarget("output")));
      const std::vector<double> expected = layer_.ExpectedOutput(rank);
      ASSERT_EQ(output.size(), expected.size());
      if (rank + 1 == kRanks) {
        EXPECT_EQ(output, expected) << "a rank without tokens has zero rows";
      } else {
        EXPECT_LE(RelativeError(output, expected), kSmallLayerTolerance) << "rank " << rank;
      }
      EXPECT_EQ(*group.Read(rank, NamedTarget("gathered")), layer_.ExpectedGathered(rank));
    }
  }
  // Tensor "other": every route to one expert, whose replicas take the slots of all ranks but its
  // home, among them one that the layer's own routes want for another.
  LayerTensor OtherRoutes(int32_t rank) const {
    LayerTensor routes = layer_.Inputs(rank)[1];
    routes.target.set_tensor("other");
    const int32_t expert = OtherExpert();
    for (size_t at = 0; at < routes.bytes.size(); at += sizeof(expert)) {
      std::memcpy(routes.bytes.data() + at, &expert, sizeof(expert));
    }
    return routes;
  }
  int32_t OtherExpert() const {
    const int32_t per_rank = layer_.geometry().experts / kRanks;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const int32_t wanted = layer_.plan().experts_to_copy[rank][0];
      if (wanted < 0) continue;
      const int32_t first = (rank + 1) % kRanks * per_rank;
      return wanted == first ? first + 1 : first;
    }
    ADD_FAILURE() << "the layer needs no replica: PERIGEE_SEED=" << seed_;
    return 0;
  }
  void ExpectAllWell(const std::vector<ProgramOutcome>& outcomes) {
    for (const ProgramOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
    }
  }

  const uint64_t seed_;
  const SmallLayer layer_;
  SessionGroup group_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_SESSION_HOST_FIXTURE_H_
