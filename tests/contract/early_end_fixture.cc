#include "tests/contract/early_end_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/types/optional.h"
#include "tests/contract/device_array.h"
#include "tests/contract/test_data.h"

namespace perigee {

EarlyEndTest::EarlyEndTest() : random_(TestSeed()) { Start(absl::Seconds(120)); }

void EarlyEndTest::Start(absl::Duration operation_timeout) {
  RankGroupOptions options;
  options.geometry = kGeometry;
  options.own_mappings = GetParam().own_mappings;
  options.operation_timeout = operation_timeout;
  options.sources = sources_;
  group_ = std::make_unique<RankGroup>(backends(), options);
  store_ = std::make_unique<ExpertStore>(backends(), kGeometry, WeightsShape{options.hidden, 8},
                                         options.own_mappings);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    store_->SetHeader(rank, 0, 1);
  }
  input_ = PlainGroup(random_, kGeometry);
  inputs_ = NamedInputs(input_, options.hidden, 1);
}

std::vector<DispatchResult> EarlyEndTest::Dispatch() {
  std::vector<DispatchResult> results = group_->Dispatch(inputs_, Copy::kInPlace);
  for (const DispatchResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status;
  return results;
}

std::vector<absl::Status> EarlyEndTest::Barrier() {
  const Sequence sequence = group_->NextSequence();
  return group_->OnAll([&](int32_t rank) { return group_->path(rank).Barrier(sequence); });
}

absl::Status EarlyEndTest::Combine(int32_t rank, Sequence sequence, const PlanPtr& plan,
                                   bool weights) {
  DataPath& path = group_->path(rank);
  const DeviceArray<BFloat16> hidden(backend(rank), size_t{kGeometry.tokens} * group_->hidden());
  const DeviceArray<float> route_weights(backend(rank), kGeometry.routes());
  return path.Combine(sequence, plan, {path.rows(), weights ? path.row_weights() : nullptr},
                      {hidden.data(), weights ? route_weights.data() : nullptr});
}

void EarlyEndTest::ExpectAll(const std::vector<absl::Status>& statuses, absl::StatusCode code,
                             AbortReason reason, const std::string& text) {
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    ExpectOne(rank, statuses[rank], code, reason, text);
  }
}

void EarlyEndTest::ExpectOne(int32_t rank, const absl::Status& status, absl::StatusCode code,
                             AbortReason reason, const std::string& text) {
  SCOPED_TRACE(testing::Message() << "rank " << rank);
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
  const absl::optional<ErrorRecord> record = group_->path(rank).last_error();
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->reason, static_cast<uint32_t>(reason));
  EXPECT_EQ(record->rank, rank);
  EXPECT_EQ(record->generation, 7u);
}

void EarlyEndTest::ExpectNextWorks() {
  ExpectOk(Barrier());
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_FALSE(group_->path(rank).last_error().has_value());
  }
  const std::vector<DispatchResult> made = Dispatch();
  const Sequence sequence = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) { return Combine(rank, sequence, made[rank].plan); }));
}

}  // namespace perigee
