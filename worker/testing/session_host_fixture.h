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
  // Tensor "other": every route to the last expert, so that slots hold others than the layer's own
  // routes want, most of which go to the first.
  LayerTensor OtherRoutes(int32_t rank) const {
    LayerTensor routes = layer_.Inputs(rank)[1];
    routes.target.set_tensor("other");
    const int32_t last = layer_.geometry().experts - 1;
    for (size_t at = 0; at < routes.bytes.size(); at += sizeof(last)) {
      std::memcpy(routes.bytes.data() + at, &last, sizeof(last));
    }
    return routes;
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
