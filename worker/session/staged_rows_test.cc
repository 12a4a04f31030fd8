// Rows that a dispatch copies out of the shard and a combine into it, on the host backend.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/bfloat16.h"
#include "worker/testing/session_host_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using StagedRowsTest = SessionHostTest;

// Sign bits of bf16 elements turned round.
std::string Negated(std::string bytes) {
  for (size_t at = 1; at < bytes.size(); at += sizeof(BFloat16)) bytes[at] ^= '\x80';
  return bytes;
}

TEST_F(StagedRowsTest, RowsTravelOutAndInAgain) {
  ExpectAllWell(group_.Execute(R"pb(
    operations {
      dispatch { hidden: "hidden" topk_experts: "topk" route_weights: "weights" plan: "p" }
    }
    operations { combine { plan: "p" output: "in_place" route_weights_output: "gathered" } }
  )pb"));
  ExpectAllWell(group_.Execute(R"pb(
    operations {
      dispatch {
        hidden: "hidden"
        route_weights: "weights"
        saved_plan: "p"
        rows_output: "rows"
        row_weights_output: "row_weights"
      }
    }
    operations { probe_copy {} }
    operations {
      combine {
        plan: "p"
        rows: "rows"
        row_weights: "row_weights"
        output: "staged"
        route_weights_output: "staged_weights"
      }
    }
    iterations: 2
  )pb"));
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(*group_.Read(rank, NamedTarget("staged")),
              *group_.Read(rank, NamedTarget("in_place")));
    EXPECT_EQ(*group_.Read(rank, NamedTarget("staged_weights")),
              *group_.Read(rank, NamedTarget("gathered")));
    LayerTensor rows{NamedTarget("mine"), {}, Negated(*group_.Read(rank, NamedTarget("rows")))};
    rows.header.set_dtype(v1::TENSOR_DTYPE_BFLOAT16);
    rows.header.add_shape(layer_.geometry().logical_rows());
    rows.header.add_shape(layer_.shape().hidden());
    rows.header.set_size_bytes(rows.bytes.size());
    Load(rank, {rows});
  }
  ExpectAllWell(
      group_.Execute(R"pb(operations { combine { plan: "p" rows: "mine" output: "negated" } })pb"));
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const std::string output = *group_.Read(rank, NamedTarget("negated"));
    EXPECT_EQ(BFloat16Values(output),
              BFloat16Values(Negated(*group_.Read(rank, NamedTarget("in_place")))));
  }
}

TEST_F(StagedRowsTest, OnlyTokensAreDispatchedAndOnlyRowsCombined) {
  ExpectAllWell(group_.Execute(R"pb(
    operations { dispatch { hidden: "hidden" topk_experts: "topk" plan: "p" rows_output: "rows" } }
  )pb"));
  for (const char* program :
       {R"pb(operations { dispatch { hidden: "rows" saved_plan: "p" } })pb",
        R"pb(operations { combine { plan: "p" rows: "hidden" output: "output" } })pb"}) {
    for (const ProgramOutcome& outcome : group_.Execute(program)) {
      EXPECT_EQ(outcome.status.reason(), "STALE_OBJECT");
      EXPECT_THAT(outcome.status.message(), HasSubstr(", expected bfloat16 ["));
    }
  }
}

}  // namespace
}  // namespace perigee
