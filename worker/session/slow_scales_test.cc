// Who hears that a buffer's scales are copied byte by byte: whoever reads the log, once.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/event_log.h"
#include "worker/memory/buffer_shape.h"
#include "worker/ops/tensor_spec.h"
#include "worker/testing/fake_backend.h"
#include "worker/testing/session_group.h"
#include "worker/testing/small_layer.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kRanks = 2;
constexpr auto kBFloat16 = v1::BufferShape::WEIGHT_FORMAT_BFLOAT16;
constexpr auto k8Bit = v1::BufferShape::WEIGHT_FORMAT_8BIT;
constexpr auto kMxfp4 = v1::BufferShape::WEIGHT_FORMAT_MXFP4;

class SlowScalesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { InitLogging("slow_scales_test", LogLevel::kInfo); }
  SlowScalesTest() { std::cout << "seed " << seed_ << "\n"; }

  v1::BufferShape Shape(v1::BufferShape::WeightFormat format, int32_t hidden,
                        int32_t intermediate) const {
    v1::BufferShape shape = layer_.shape();
    shape.set_weight_format(format);
    shape.set_weight_scales(format != kBFloat16);
    shape.set_hidden(hidden);
    shape.set_intermediate(intermediate);
    return shape;
  }
  // A group with the buffer, made anew.
  void Make(const v1::BufferShape& shape, const std::string& backend = "cuda") {
    group_ = std::make_unique<SessionGroup>(kRanks, [&](int32_t) {
      auto fake = std::make_unique<FakeBackend>();
      fake->set_name(backend);
      return fake;
    });
    group_->MakeBuffer(shape);
  }
  // The lines that `act` has logged of it.
  template <typename Act>
  std::vector<std::string> LinesOf(const Act& act) {
    testing::internal::CaptureStderr();
    act();
    fflush(stderr);
    std::vector<std::string> lines =
        absl::StrSplit(testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
    lines.erase(std::remove_if(lines.begin(), lines.end(),
                               [](const std::string& line) {
                                 return !absl::StrContains(line, "slow_scales ");
                               }),
                lines.end());
    return lines;
  }
  void Load(const v1::BufferShape& wire) {
    const BufferShape shape = *ParseBufferShape(wire, kRanks);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      for (const LayerTensor& tensor : layer_.Inputs(rank)) {
        Write(rank, tensor.target, tensor.header, tensor.bytes);
      }
      for (int kind = v1::WeightTarget::GATE; kind <= v1::WeightTarget::DOWN_SCALES; ++kind) {
        const auto matrix = static_cast<v1::WeightTarget::Kind>(kind);
        const TensorSpec spec = WeightMatrixSpec(matrix, shape);
        Write(rank, WeightsTarget(0, 9, matrix), ToHeader(spec), std::string(spec.size_bytes, 7));
      }
    }
  }
  void Write(int32_t rank, const v1::TensorTarget& target, const v1::TensorHeader& header,
             const std::string& bytes) {
    const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
    const absl::Status status =
        group_->Write(rank, target, header, absl::MakeConstSpan(data, bytes.size()));
    EXPECT_TRUE(status.ok()) << status;
  }

  const uint64_t seed_ = std::random_device()();
  const SmallLayer layer_{kRanks, seed_};
  std::unique_ptr<SessionGroup> group_;
};

TEST_F(SlowScalesTest, ItIsSaidOnceOfEachRanksBuffer) {
  const v1::BufferShape shape = Shape(k8Bit, layer_.shape().hidden(), 136);
  const std::vector<std::string> lines = LinesOf([&] { Make(shape); });
  ASSERT_EQ(lines.size(), size_t{kRanks});
  for (const std::string& line : lines) {
    EXPECT_THAT(line, HasSubstr(absl::StrCat("slow_scales buffer=", kTestBuffer, " hidden=",
                                             shape.hidden(), " intermediate=136 why=")));
    EXPECT_THAT(line, HasSubstr("multiple of 16 bytes"));
  }
  const std::vector<std::string> later = LinesOf([&] {
    Load(shape);
    for (int round = 0; round < 2; ++round) {
      for (const ProgramOutcome& outcome : group_->Execute(R"pb(
             operations { dispatch { hidden: "hidden" topk_experts: "topk" plan: "p" } }
             operations { prefetch_weights { plan: "p" layer: 0 weights_version: 9 } }
           )pb")) {
        EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
      }
    }
  });
  EXPECT_TRUE(later.empty()) << later[0];
}

// Scales of 8 bit are 4 bytes for each 128 by 128 elements, those of MXFP4 one for 32 of a row.
TEST_F(SlowScalesTest, ItIsSaidWhereAPartIsNotWholeVectorsAndNowhereElse) {
  const struct {
    v1::BufferShape::WeightFormat format;
    int32_t hidden, intermediate;
    bool slow;
  } cases[] = {{k8Bit, 256, 256, false}, {k8Bit, 512, 128, false},  {k8Bit, 248, 136, false},
               {k8Bit, 384, 128, true},  {k8Bit, 128, 8, true},     {kMxfp4, 16, 48, false},
               {kMxfp4, 8, 40, true},    {kMxfp4, 24, 16, true},    {kMxfp4, 40, 48, false},
               {kMxfp4, 40, 104, false}, {kMxfp4, 104, 40, false},  {kMxfp4, 128, 128, false},
               {kBFloat16, 8, 8, false}, {kBFloat16, 24, 40, false}};
  for (const auto& one : cases) {
    const auto lines = LinesOf([&] { Make(Shape(one.format, one.hidden, one.intermediate)); });
    EXPECT_EQ(lines.size(), one.slow ? size_t{kRanks} : 0)
        << one.format << " " << one.hidden << " " << one.intermediate;
  }
  const auto without = LinesOf([&] {
    v1::BufferShape shape = Shape(kMxfp4, 8, 40);
    shape.set_weight_scales(false);
    Make(shape);
  });
  EXPECT_TRUE(without.empty()) << without[0];
}

TEST_F(SlowScalesTest, ItIsNotSaidWhereNoSlotsAreFilled) {
  v1::BufferShape shape = Shape(k8Bit, 384, 128);
  shape.set_slots(0);
  const auto lines = LinesOf([&] { Make(shape); });
  EXPECT_TRUE(lines.empty()) << lines[0];
}

TEST_F(SlowScalesTest, ItIsNotSaidOfWhatCopiesAllSizesAlike) {
  const auto lines = LinesOf([&] { Make(Shape(k8Bit, 384, 128), "host"); });
  EXPECT_TRUE(lines.empty()) << lines[0];
}

}  // namespace
}  // namespace perigee
