#include "client/lib/tensor.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(TensorTest, SizesAndTheirLimits) {
  EXPECT_EQ(TensorBytes(v1::TENSOR_DTYPE_BFLOAT16, {3, 5}), 30);
  EXPECT_EQ(TensorBytes(v1::TENSOR_DTYPE_INT32, {}), 4);
  EXPECT_EQ(TensorBytes(v1::TENSOR_DTYPE_FLOAT32, {0, 7}), 0);
  EXPECT_EQ(TensorBytes(v1::TENSOR_DTYPE_UNSPECIFIED, {1}), -1);
  EXPECT_EQ(TensorBytes(v1::TENSOR_DTYPE_INT32, {-1}), -1);
  EXPECT_EQ(TensorBytes(v1::TENSOR_DTYPE_INT32, {int64_t{1} << 40, int64_t{1} << 40}), -1);
}

TEST(TensorTest, DescribesItself) {
  EXPECT_EQ(DescribeTensor(v1::TENSOR_DTYPE_BFLOAT16, {8, 256}), "BFLOAT16 [8, 256]");
}

TEST(TensorTest, SlicesTheFirstDimension) {
  Tensor tensor{v1::TENSOR_DTYPE_BFLOAT16, {3, 2}, std::vector<std::byte>(12)};
  for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = std::byte(i);
  const TensorView slice = Slice(tensor.view(), 1, 2);
  EXPECT_EQ(slice.shape, (std::vector<int64_t>{2, 2}));
  ASSERT_EQ(slice.data.size(), 8u);
  EXPECT_EQ(slice.data.data(), tensor.data.data() + 4);
  EXPECT_TRUE(Slice(tensor.view(), 3, 0).data.empty());
}

}  // namespace
}  // namespace perigee
