#include "kernels/host/matrix_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace perigee {
namespace {

std::vector<float> Integers(std::mt19937_64& random, size_t size) {
  std::uniform_int_distribution<int> digits(-8, 8);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(digits(random));
  return values;
}

// Small integers: every sum is exact, so any order and any fusing gives the same.
TEST(MatrixProductTest, IsExactOnIntegers) {
  std::mt19937_64 random(1);
  for (int32_t rows = 1; rows <= 14; ++rows) {
    for (int32_t depth : {1, 8, 24, 100}) {
      for (int32_t columns : {8, 16, 24, 40}) {
        const std::vector<float> a = Integers(random, rows * depth);
        const std::vector<float> b = Integers(random, depth * columns);
        std::vector<BFloat16> matrix(b.size());
        for (size_t i = 0; i < b.size(); ++i) matrix[i] = ToBFloat16(b[i]);
        for (int32_t column = 0; column < columns; column += kPanelColumns) {
          std::vector<float> panel(depth * kPanelColumns, NAN);
          std::vector<float> out(rows * kPanelColumns + 1, NAN);
          PackPanel(matrix.data(), depth, columns, column, panel.data());
          MultiplyPanel(a.data(), rows, depth, panel.data(), out.data());
          for (int32_t row = 0; row < rows; ++row) {
            for (int32_t j = 0; j < kPanelColumns; ++j) {
              float expected = 0.0f;
              for (int32_t i = 0; i < depth && column + j < columns; ++i) {
                expected += a[row * depth + i] * b[i * columns + column + j];
              }
              ASSERT_EQ(out[row * kPanelColumns + j], expected);
            }
          }
          ASSERT_TRUE(std::isnan(out.back())) << "written past the end";
        }
      }
    }
  }
}

TEST(MatrixProductTest, ARowsBitsDoNotDependOnItsNeighbours) {
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  constexpr int32_t kRows = 13;
  constexpr int32_t kDepth = 96;
  std::vector<float> rows(kRows * kDepth);
  std::vector<float> panel(kDepth * kPanelColumns);
  for (float& value : rows) value = normal(random);
  for (float& value : panel) value = normal(random);
  std::vector<float> together(kRows * kPanelColumns);
  MultiplyPanel(rows.data(), kRows, kDepth, panel.data(), together.data());
  for (int32_t row = 0; row < kRows; ++row) {
    std::vector<float> alone(kPanelColumns);
    MultiplyPanel(&rows[row * kDepth], 1, kDepth, panel.data(), alone.data());
    for (int32_t j = 0; j < kPanelColumns; ++j) {
      ASSERT_EQ(alone[j], together[row * kPanelColumns + j]) << "row " << row;
    }
  }
}

}  // namespace
}  // namespace perigee
