// Tensor headers, the store of named tensors, and the ledger of weights.
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/session/failure_reason.h"
#include "worker/session/tensor_store.h"
#include "worker/session/weight_ledger.h"
#include "worker/testing/fake_backend.h"

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
  const absl::Status status = check(v1::TENSOR_DTYPE_BFLOAT16, {9, 16});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("bfloat16 [9, 16]"));
  EXPECT_THAT(Message(status), HasSubstr("bfloat16 [n, 16]"));
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_BFLOAT16, {8, 2}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_INT32, {8, 16}).ok());
  EXPECT_FALSE(check(v1::TENSOR_DTYPE_INT32, {8}).ok());
}

TEST(TensorSpecTest, WeightMatricesHaveTheirShapes) {
  EXPECT_EQ(WeightMatrixSpec(v1::WeightTarget::GATE, Shape()).shape,
            (std::vector<int64_t>{2, 16, 24}));
  EXPECT_EQ(WeightMatrixSpec(v1::WeightTarget::DOWN, Shape()).shape,
            (std::vector<int64_t>{2, 24, 16}));
}

TEST(TensorSpecTest, Names) {
  EXPECT_TRUE(CheckObjectName("tensor", "layer_0/hidden-1.x").ok());
  EXPECT_FALSE(CheckObjectName("tensor", "").ok());
  EXPECT_FALSE(CheckObjectName("tensor", "a b").ok());
  EXPECT_FALSE(CheckObjectName("tensor", std::string("a\0", 2)).ok());
  EXPECT_FALSE(CheckObjectName("tensor", std::string(65, 'a')).ok());
}

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

v1::WeightTarget Target(int32_t layer, uint64_t version, v1::WeightTarget::Kind kind) {
  v1::WeightTarget target;
  target.set_layer(layer);
  target.set_version(version);
  target.set_kind(kind);
  return target;
}

class WeightLedgerTest : public ::testing::Test {
 protected:
  bool Load(int32_t layer, uint64_t version, v1::WeightTarget::Kind kind) {
    EXPECT_TRUE(ledger_.Begin(Target(layer, version, kind)).ok());
    return ledger_.Finish(Target(layer, version, kind));
  }
  bool LoadAll(int32_t layer, uint64_t version) {
    Load(layer, version, v1::WeightTarget::UP);
    Load(layer, version, v1::WeightTarget::GATE);
    return Load(layer, version, v1::WeightTarget::DOWN);
  }
  WeightLedger ledger_{2};
};

TEST_F(WeightLedgerTest, HoldsAVersionWhenAllThreeAreComplete) {
  EXPECT_FALSE(Load(0, 5, v1::WeightTarget::GATE));
  EXPECT_FALSE(Load(0, 5, v1::WeightTarget::DOWN));
  EXPECT_FALSE(Load(1, 5, v1::WeightTarget::UP));
  EXPECT_EQ(ledger_.version(0), 0u);
  EXPECT_TRUE(Load(0, 5, v1::WeightTarget::UP));
  EXPECT_EQ(ledger_.version(0), 5u);
  EXPECT_EQ(ledger_.version(1), 0u);
}

TEST_F(WeightLedgerTest, HoldsNothingFromTheFirstByteOfAnother) {
  ASSERT_TRUE(LoadAll(0, 5));
  ASSERT_TRUE(ledger_.Begin(Target(0, 6, v1::WeightTarget::UP)).ok());
  EXPECT_EQ(ledger_.version(0), 0u);
  EXPECT_FALSE(ledger_.Finish(Target(0, 6, v1::WeightTarget::UP)));
  EXPECT_FALSE(Load(0, 6, v1::WeightTarget::GATE));
  EXPECT_TRUE(Load(0, 6, v1::WeightTarget::DOWN));
}

TEST_F(WeightLedgerTest, AnAbandonedMatrixMustComeAgain) {
  ASSERT_TRUE(LoadAll(0, 5));
  ASSERT_TRUE(ledger_.Begin(Target(0, 5, v1::WeightTarget::UP)).ok());
  ledger_.Abandon(Target(0, 5, v1::WeightTarget::UP));
  EXPECT_EQ(ledger_.version(0), 0u);
  EXPECT_FALSE(Load(0, 5, v1::WeightTarget::DOWN));
  EXPECT_TRUE(Load(0, 5, v1::WeightTarget::UP));
}

TEST_F(WeightLedgerTest, ParallelLoadsOfOneMatrixOrOfTwoVersionsAreRefused) {
  ASSERT_TRUE(ledger_.Begin(Target(0, 5, v1::WeightTarget::UP)).ok());
  EXPECT_EQ(ledger_.Begin(Target(0, 5, v1::WeightTarget::UP)).code(), absl::StatusCode::kAborted);
  const absl::Status status = ledger_.Begin(Target(0, 6, v1::WeightTarget::DOWN));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Message(status), HasSubstr("version 5"));
  EXPECT_TRUE(ledger_.Begin(Target(0, 5, v1::WeightTarget::DOWN)).ok());
  EXPECT_TRUE(ledger_.Begin(Target(1, 6, v1::WeightTarget::UP)).ok());
}

TEST_F(WeightLedgerTest, BadTargetsAreRefused) {
  for (const v1::WeightTarget& target :
       {Target(-1, 1, v1::WeightTarget::UP), Target(2, 1, v1::WeightTarget::UP),
        Target(0, 0, v1::WeightTarget::UP), Target(0, 1, v1::WeightTarget::KIND_UNSPECIFIED),
        Target(0, 1, static_cast<v1::WeightTarget::Kind>(9))}) {
    EXPECT_EQ(ledger_.Begin(target).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace perigee
