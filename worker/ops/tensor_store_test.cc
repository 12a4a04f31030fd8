#include "worker/ops/tensor_store.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"
#include "worker/testing/fake_backend.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class TensorStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<StoredTensor> Put(const std::string& name) {
    std::shared_ptr<StoredTensor> tensor = *store_.Allocate(spec_);
    EXPECT_TRUE(store_.Put(name, tensor).ok());
    return tensor;
  }
  const TensorSpec spec_ = MakeTensorSpec(v1::TENSOR_DTYPE_INT32, {4, 2});
  FakeBackend backend_;
  ByteBudget budget_{100};
  TensorStore store_{backend_, budget_};
};

TEST_F(TensorStoreTest, ANameMeansTheLastTensorPutThere) {
  EXPECT_EQ(ReasonOf(store_.Find("x").status()), kReasonStaleObject);
  EXPECT_THAT(Message(store_.Find("x").status()), HasSubstr("'x'"));
  const std::shared_ptr<StoredTensor> first = Put("x");
  const std::shared_ptr<StoredTensor> second = Put("x");
  EXPECT_EQ(*store_.Find("x"), second);
}

TEST_F(TensorStoreTest, BytesAreCountedUntilTheLastHolderLetsGo) {
  std::weak_ptr<StoredTensor> reader = Put("x");
  EXPECT_EQ(budget_.used_bytes(), 32u);
  std::shared_ptr<StoredTensor> held = *store_.Find("x");
  Put("x");
  EXPECT_EQ(budget_.used_bytes(), 64u);
  EXPECT_FALSE(reader.expired());
  held.reset();
  EXPECT_TRUE(reader.expired());
  EXPECT_EQ(budget_.used_bytes(), 32u);
  store_.Clear();
  EXPECT_EQ(budget_.used_bytes(), 0u);
  EXPECT_EQ(backend_.ledger()->alive("private"), 0);
}

TEST_F(TensorStoreTest, TheLimitIsNamed) {
  Put("a");
  Put("b");
  Put("c");
  const absl::Status status = store_.Allocate(spec_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("32 bytes"));
  EXPECT_THAT(Message(status), HasSubstr("4 of 100"));
}

TEST_F(TensorStoreTest, OutputsUseOldMemoryAgainButAreOtherTensors) {
  std::byte* memory = Put("out")->data();
  std::weak_ptr<StoredTensor> reader = *store_.Find("out");
  std::shared_ptr<StoredTensor> taken = *store_.TakeForOutput("out", spec_, "program 5 failed");
  EXPECT_EQ(taken->data(), memory);
  EXPECT_TRUE(reader.expired());
  EXPECT_EQ(budget_.used_bytes(), 32u);
  EXPECT_THAT(Message(store_.Find("out").status()), HasSubstr("program 5 failed"));
  ASSERT_TRUE(store_.Put("out", taken).ok());
  EXPECT_EQ(*store_.Find("out"), taken);
}

TEST_F(TensorStoreTest, OutputsLeaveAloneWhatSomebodyHolds) {
  const std::shared_ptr<StoredTensor> held = Put("out");
  std::shared_ptr<StoredTensor> taken = *store_.TakeForOutput("out", spec_, "");
  EXPECT_NE(taken->data(), held->data());
  const TensorSpec other = MakeTensorSpec(v1::TENSOR_DTYPE_INT32, {1, 2});
  ASSERT_TRUE(store_.Put("out", std::move(taken)).ok());
  EXPECT_EQ((*store_.TakeForOutput("out", other, ""))->spec(), other);
}

TEST_F(TensorStoreTest, EmptyTensorsTakeNoMemory) {
  const TensorSpec empty = MakeTensorSpec(v1::TENSOR_DTYPE_INT32, {0, 2});
  std::shared_ptr<StoredTensor> tensor = *store_.Allocate(empty);
  EXPECT_EQ(tensor->data(), nullptr);
  EXPECT_EQ(backend_.ledger()->alive("private"), 0);
}

TEST_F(TensorStoreTest, NamesAreBounded) {
  const TensorSpec empty = MakeTensorSpec(v1::TENSOR_DTYPE_INT32, {0, 2});
  for (size_t i = 0; i < kMaxTensors; ++i) {
    ASSERT_TRUE(store_.Put(absl::StrCat("t", i), *store_.Allocate(empty)).ok());
  }
  EXPECT_EQ(store_.Put("more", *store_.Allocate(empty)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(store_.Put("t0", *store_.Allocate(empty)).ok());
}

}  // namespace
}  // namespace perigee
