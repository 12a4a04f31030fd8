#include "proto/local/completion_record.h"

#include <thread>

#include "gtest/gtest.h"
#include "proto/local/ring_fixtures.h"

namespace perigee {
namespace {

TEST(CompletionRecordTest, CompletionsComeBackAsTheyWere) {
  std::mt19937_64 random(RingTestSeed());
  CompletionRecord record;
  for (int i = 0; i < 1000; ++i) {
    const LocalCompletion completion = RandomCompletion(random);
    WriteCompletion(record, completion);
    const absl::StatusOr<LocalCompletion> read = ReadCompletion(record);
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSame(*read, completion);
  }
}

TEST(CompletionRecordTest, WhatIsTooLongIsCut) {
  CompletionRecord record;
  LocalCompletion completion;
  completion.status = absl::InternalError(std::string(kCompletionMessageBytes + 5, 'x'));
  completion.reason = std::string(40, 'R');
  completion.lost = {-1, 127, 128};
  WriteCompletion(record, completion);
  const absl::StatusOr<LocalCompletion> read = ReadCompletion(record);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->status, absl::InternalError(std::string(kCompletionMessageBytes, 'x')));
  EXPECT_EQ(read->reason, std::string(23, 'R'));
  EXPECT_EQ(read->lost, std::vector<int32_t>{127});
}

TEST(CompletionRecordTest, AWriterThatDiedOverItIsTold) {
  CompletionRecord record;
  WriteCompletion(record, LocalCompletion());
  record.lock += 1;
  EXPECT_EQ(ReadCompletion(record).status().code(), absl::StatusCode::kUnavailable);
  // The next writer mends it.
  WriteCompletion(record, LocalCompletion());
  EXPECT_TRUE(ReadCompletion(record).ok());
}

TEST(CompletionRecordTest, WhatNoRecordSaysIsTold) {
  const auto expect_damaged = [](CompletionRecord& record) {
    EXPECT_EQ(ReadCompletion(record).status().code(), absl::StatusCode::kDataLoss);
  };
  CompletionRecord record;
  record.facts.code = 17;
  expect_damaged(record);
  record = CompletionRecord();
  record.facts.message_bytes = kCompletionMessageBytes + 1;
  expect_damaged(record);
  record = CompletionRecord();
  record.facts.reason[23] = 'x';
  expect_damaged(record);
  record = CompletionRecord();
  record.facts.phase = 3;
  expect_damaged(record);
}

// The message of every record says its position: one that was read in halves would not.
TEST(CompletionRecordTest, NobodyReadsHalfARecord) {
  CompletionRecord record;
  std::atomic<bool> done = false;
  const auto message_of = [](uint64_t position) {
    return std::string(1 + position % kCompletionMessageBytes,
                       static_cast<char>('a' + position % 26));
  };
  const auto write = [&](uint64_t position) {
    LocalCompletion completion;
    completion.position = position;
    completion.status = absl::InternalError(message_of(position));
    WriteCompletion(record, completion);
  };
  write(0);
  std::thread writer([&] {
    for (uint64_t position = 1; !done; ++position) write(position);
  });
  uint64_t last = 0;
  for (int i = 0; i < 50000; ++i) {
    const absl::StatusOr<LocalCompletion> read = ReadCompletion(record);
    if (!read.ok()) continue;
    EXPECT_EQ(read->status.message(), message_of(read->position));
    EXPECT_GE(read->position, last);
    last = read->position;
  }
  done = true;
  writer.join();
  EXPECT_TRUE(ReadCompletion(record).ok());
}

}  // namespace
}  // namespace perigee
