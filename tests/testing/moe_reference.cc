#include "tests/testing/moe_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace perigee {

std::vector<RowSource> RowSourcesOf(const Geometry& geometry, const ReferencePlan& plan,
                                    int32_t rank) {
  const int64_t rows = geometry.logical_rows();
  std::vector<RowSource> sources(rows);
  for (const auto& [first, count] : plan.zero_fill[rank]) {
    for (int32_t row = first; row < first + count; ++row) {
      sources[row].kind = RowSource::Kind::kPadding;
    }
  }
  for (int32_t source = 0; source < geometry.ranks; ++source) {
    for (int32_t i = 0; i < geometry.routes(); ++i) {
      const int64_t dst = plan.dst[source][i];
      if (dst == INT32_MIN) continue;
      const int64_t raw = dst >= 0 ? dst : -dst - 1;
      if (raw / rows != rank) continue;
      RowSource& row = sources[raw % rows];
      EXPECT_EQ(static_cast<int>(row.kind), static_cast<int>(RowSource::Kind::kUndefined));
      row = {RowSource::Kind::kRoute, source, i / geometry.topk, i % geometry.topk};
    }
  }
  return sources;
}

double RoundToBFloat16(double value) {
  if (!std::isfinite(value) || value == 0.0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);                   // |value| in [2^(exponent-1), 2^exponent)
  const int unit = std::max(exponent - 8, -133);  // 8 significant bits; subnormals are coarser
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::abs(rounded) >= std::ldexp(1.0, 128) ? std::copysign(INFINITY, value) : rounded;
}

double Value(BFloat16 bits) {
  const int exponent = (bits.bits >> 7) & 0xff;
  const int fraction = bits.bits & 0x7f;
  const double sign = (bits.bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0xff) return fraction != 0 ? std::nan("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -133);
  return sign * std::ldexp(128 + fraction, exponent - 134);
}

BFloat16 Bits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return BFloat16{0x7fc0};
  if (std::isinf(value)) return BFloat16{static_cast<uint16_t>(sign | 0x7f80)};
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  if (value == 0.0) return BFloat16{sign};
  if (exponent < -125) {
    const auto subnormal = static_cast<uint16_t>(std::ldexp(std::abs(value), 133));
    return BFloat16{static_cast<uint16_t>(sign | subnormal)};
  }
  const int mantissa = static_cast<int>(fraction * 256) - 128;
  return BFloat16{static_cast<uint16_t>(sign | (exponent + 126) << 7 | mantissa)};
}

std::vector<std::vector<double>> CombineByTheRules(const Geometry& geometry, int32_t hidden,
                                                   const ReferencePlan& plan,
                                                   const std::vector<std::vector<double>>& rows,
                                                   const Rounding& rounding) {
  const int64_t logical_rows = geometry.logical_rows();
  const auto sum_one = [&](int32_t rank, int32_t token, int32_t column) {
    const auto dst = [&](int32_t k) {
      return int64_t{plan.dst[rank][static_cast<size_t>(token) * geometry.topk + k]};
    };
    float sum = 0.0f;
    bool first = true;
    for (int32_t k = 0; k < geometry.topk; ++k) {
      if (dst(k) < 0) continue;  // masked, or counted with its primary below
      const int64_t on_rank = dst(k) / logical_rows;
      const auto value = [&](int64_t raw) {
        return static_cast<float>(rows[on_rank][(raw % logical_rows) * hidden + column]);
      };
      float local = value(dst(k));
      bool several = false;
      for (int32_t later = k + 1; later < geometry.topk; ++later) {
        if (dst(later) >= 0 || dst(later) == INT32_MIN) continue;
        const int64_t raw = -dst(later) - 1;
        if (raw / logical_rows != on_rank) continue;
        local += value(raw);
        several = true;
      }
      if (several && rounding.local_sum) local = static_cast<float>(RoundToBFloat16(local));
      sum = first ? local : sum + local;
      first = false;
    }
    return RoundToBFloat16(sum);
  };
  std::vector<std::vector<double>> result(geometry.ranks);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    for (int32_t token = 0; token < geometry.tokens; ++token) {
      for (int32_t column = 0; column < hidden; ++column) {
        result[rank].push_back(sum_one(rank, token, column));
      }
    }
  }
  return result;
}

std::vector<double> RunExpertByTheRules(const std::vector<double>& row, const ExpertValues& expert,
                                        double weight, const Rounding& rounding) {
  const size_t hidden = row.size();
  const size_t intermediate = expert.gate.size() / hidden;
  std::vector<double> h(intermediate);
  for (size_t j = 0; j < intermediate; ++j) {
    double gate = 0.0;
    double up = 0.0;
    for (size_t i = 0; i < hidden; ++i) {
      gate += row[i] * expert.gate[i * intermediate + j];
      up += row[i] * expert.up[i * intermediate + j];
    }
    h[j] = gate / (1.0 + std::exp(-gate)) * up;
    if (rounding.expert_hidden) h[j] = RoundToBFloat16(h[j]);
  }
  std::vector<double> output(hidden);
  for (size_t i = 0; i < hidden; ++i) {
    double sum = 0.0;
    for (size_t j = 0; j < intermediate; ++j) sum += h[j] * expert.down[j * hidden + i];
    output[i] = sum * weight;
    if (rounding.expert_output) output[i] = RoundToBFloat16(output[i]);
  }
  return output;
}

double RelativeError(const std::vector<double>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return norm == 0.0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

}  // namespace perigee
