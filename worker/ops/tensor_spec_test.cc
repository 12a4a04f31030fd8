#include "worker/ops/tensor_spec.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

BufferShape Shape() {
  BufferShape shape;
  shape.geometry = Geometry{2, 4, 8, 2, 2, 4};
  shape.hidden = 16;
  shape.intermediate = 24;
  shape.layers = 2;
  return shape;
}

v1::TensorHeader Header(v1::TensorDtype dtype, std::vector<int64_t> shape, uint64_t size_bytes) {
  v1::TensorHeader header;
  header.set_dtype(dtype);
  for (const int64_t size : shape) header.add_shape(size);
  header.set_size_bytes(size_bytes);
  return header;
}

TEST(TensorSpecTest, HeadersSurviveTheWay) {
  for (const TensorSpec& spec : {MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {3, 16}),
                                 MakeTensorSpec(v1::TENSOR_DTYPE_INT32, {0, 2}),
                                 MakeTensorSpec(v1::TENSOR_DTYPE_FLOAT32, {})}) {
    absl::StatusOr<TensorSpec> parsed = ParseTensorHeader(ToHeader(spec));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, spec);
  }
  EXPECT_EQ(MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {3, 16}).size_bytes, 96u);
}

TEST(TensorSpecTest, BadHeadersAreRefused) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const auto refused = [](const v1::TensorHeader& header) {
    return ParseTensorHeader(header).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(Header(v1::TENSOR_DTYPE_UNSPECIFIED, {1}, 1)));
  EXPECT_TRUE(refused(Header(static_cast<v1::TensorDtype>(99), {1}, 1)));
  EXPECT_TRUE(refused(Header(v1::TENSOR_DTYPE_INT32, {2}, 4)));
  EXPECT_TRUE(refused(Header(v1::TENSOR_DTYPE_INT32, {-1}, 4)));
  EXPECT_TRUE(refused(Header(v1::TENSOR_DTYPE_INT32, {kHuge, kHuge}, 4)));
  EXPECT_TRUE(refused(Header(v1::TENSOR_DTYPE_INT32, {int64_t{1} << 31, int64_t{1} << 31}, 0)));
  EXPECT_TRUE(refused(Header(v1::TENSOR_DTYPE_INT32, {1, 1, 1, 1, 1}, 4)));
}

TEST(TensorSpecTest, NamedTensorsFitTheBuffer) {
  const BufferShape shape = Shape();
  const auto check = [&](v1::TensorDtype dtype, std::vector<int64_t> sizes) {
    return CheckNamedTensor(MakeTensorSpec(dtype, sizes), shape);
  };
  EXPECT_TRUE(check(v1::TENSOR_DTYPE_BFLOAT16, {8, 16}).ok());
  EXPECT_TRUE(check(v1::TENSOR_DTYPE_BFLOAT16, {0, 16}).ok());
  EXPECT_TRUE(check(v1::TENSOR_DTYPE_INT32, {5, 2}).ok());
  EXPECT_TRUE(check(v1::TENSOR_DTYPE_FLOAT32, {5, 2}).ok());
  const int64_t rows = shape.geometry.logical_rows();
  EXPECT_TRUE(check(v1::TENSOR_DTYPE_BFLOAT16, {rows, 16}).ok());
  EXPECT_TRUE(check(v1::TENSOR_DTYPE_FLOAT32, {rows}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_BFLOAT16, {rows - 1, 16}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_INT32, {rows}).ok());
  const absl::Status status = check(v1::TENSOR_DTYPE_BFLOAT16, {9, 16});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("bfloat16 [9, 16]"));
  EXPECT_THAT(Message(status), HasSubstr("bfloat16 [n, 16]"));
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_BFLOAT16, {8, 2}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_INT32, {8, 16}).ok());
  // Factors of a product.
  EXPECT_TRUE(check(v1::TENSOR_DTYPE_BFLOAT16, {8, 40}).ok());
  EXPECT_TRUE(check(v1::TENSOR_DTYPE_BFLOAT16, {40, 16}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_BFLOAT16, {40, 40}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_BFLOAT16, {65544, 16}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_FLOAT32, {40, 16}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_INT32, {8}).ok());
}

TEST(TensorSpecTest, WeightMatricesHaveTheirShapes) {
  EXPECT_EQ(WeightMatrixSpec(v1::WeightTarget::GATE, Shape()).shape,
            (std::vector<int64_t>{2, 16, 24}));
  EXPECT_EQ(WeightMatrixSpec(v1::WeightTarget::DOWN, Shape()).shape,
            (std::vector<int64_t>{2, 24, 16}));
}

TEST(TensorSpecTest, WeightsOfOtherFormatsHaveTheirs) {
  BufferShape shape = Shape();
  shape.weight_format = WeightFormat::k8Bit;
  shape.weight_scales = true;
  const auto spec = [&](v1::WeightTarget::Kind kind) {
    return Describe(WeightMatrixSpec(kind, shape));
  };
  EXPECT_EQ(spec(v1::WeightTarget::UP), "uint8 [2, 16, 24]");
  EXPECT_EQ(spec(v1::WeightTarget::DOWN_SCALES), "float32 [2, 1, 1]");
  shape.weight_format = WeightFormat::kMxfp4;
  shape.intermediate = 40;
  EXPECT_EQ(spec(v1::WeightTarget::GATE), "uint8 [2, 16, 20]");
  EXPECT_EQ(spec(v1::WeightTarget::DOWN), "uint8 [2, 40, 8]");
  EXPECT_EQ(spec(v1::WeightTarget::GATE_SCALES), "uint8 [2, 16, 2]");
  EXPECT_EQ(spec(v1::WeightTarget::DOWN_SCALES), "uint8 [2, 40, 1]");
  EXPECT_FALSE(CheckNamedTensor(MakeTensorSpec(v1::TENSOR_DTYPE_UINT8, {5, 2}), shape).ok());
}

TEST(TensorSpecTest, Names) {
  EXPECT_TRUE(CheckObjectName("tensor", "layer_0/hidden-1.x").ok());
  EXPECT_FALSE(CheckObjectName("tensor", "").ok());
  EXPECT_FALSE(CheckObjectName("tensor", "a b").ok());
  EXPECT_FALSE(CheckObjectName("tensor", std::string("a\0", 2)).ok());
  EXPECT_FALSE(CheckObjectName("tensor", std::string(65, 'a')).ok());
}

}  // namespace
}  // namespace perigee
