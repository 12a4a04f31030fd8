// Tensors on their way in and out of a buffer, on a fake data path.
#include <cstring>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/layout/weights_layout.h"
#include "worker/ops/failure_reason.h"
#include "worker/session/tensor_download.h"
#include "worker/session/tensor_upload.h"
#include "worker/testing/fake_backend.h"
#include "worker/testing/session_group.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr v1::WeightTarget::Kind kGate = v1::WeightTarget::GATE;
constexpr v1::WeightTarget::Kind kUp = v1::WeightTarget::UP;
constexpr v1::WeightTarget::Kind kDown = v1::WeightTarget::DOWN;

std::string Message(const absl::Status& status) { return std::string(status.message()); }
absl::Span<const std::byte> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

class TensorStreamTest : public ::testing::Test {
 protected:
  TensorStreamTest()
      : group_(1, [this](int32_t) {
          auto backend = std::make_unique<FakeBackend>();
          ledger_ = backend->ledger();
          backend->set_on_data_path([this](FakeDataPath& path) { path_ = &path; });
          return backend;
        }) {
    v1::BufferShape shape;
    shape.set_tokens(4);
    shape.set_hidden(8);
    shape.set_topk(2);
    shape.set_experts(2);
    shape.set_intermediate(16);
    shape.set_layers(2);
    shape.set_gradients(true);
    group_.MakeBuffer(shape);
  }

  absl::StatusOr<std::unique_ptr<TensorUpload>> Begin(const v1::TensorTarget& target,
                                                      const TensorSpec& spec) {
    return TensorUpload::Begin(group_.shared_buffer(0), target, ToHeader(spec));
  }
  absl::Status Write(const v1::TensorTarget& target, const TensorSpec& spec, char fill) {
    return group_.Write(0, target, ToHeader(spec), Bytes(std::string(spec.size_bytes, fill)));
  }
  absl::Status WriteWeights(uint64_t version, v1::WeightTarget::Kind kind, char fill) {
    return Write(WeightsTarget(1, version, kind), kind == kDown ? down_ : gate_, fill);
  }
  HomeHeader Home(int32_t layer) {
    HomeHeader header;
    std::memcpy(&header, group_.buffer(0).forming_memory().own_home(layer), sizeof(header));
    return header;
  }

  const TensorSpec hidden_ = MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {3, 8});
  const TensorSpec gate_ = MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {2, 8, 16});
  const TensorSpec down_ = MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {2, 16, 8});
  std::shared_ptr<BackendLedger> ledger_;
  FakeDataPath* path_ = nullptr;
  SessionGroup group_;
};

TEST_F(TensorStreamTest, ATensorComesBackAsItWasWritten) {
  std::string bytes;
  for (size_t i = 0; i < hidden_.size_bytes; ++i) bytes += static_cast<char>(i * 7);
  auto upload = *Begin(NamedTarget("x"), hidden_);
  for (const char byte : bytes) ASSERT_TRUE(upload->Append(absl::string_view(&byte, 1)).ok());
  ASSERT_TRUE(upload->Finish().ok());
  EXPECT_EQ(upload->written_bytes(), bytes.size());
  EXPECT_EQ(*group_.Read(0, NamedTarget("x")), bytes);
}

TEST_F(TensorStreamTest, AnEmptyTensorIsATensor) {
  const TensorSpec empty = MakeTensorSpec(v1::TENSOR_DTYPE_INT32, {0, 2});
  EXPECT_TRUE(Write(NamedTarget("t"), empty, 0).ok());
  EXPECT_EQ(*group_.Read(0, NamedTarget("t")), "");
}

TEST_F(TensorStreamTest, TheOldTensorStaysUntilTheNewOneIsComplete) {
  ASSERT_TRUE(Write(NamedTarget("x"), hidden_, 'a').ok());
  auto upload = *Begin(NamedTarget("x"), hidden_);
  ASSERT_TRUE(upload->Append("bbbb").ok());
  EXPECT_EQ((*group_.Read(0, NamedTarget("x")))[0], 'a');
  EXPECT_EQ(upload->Finish().code(), absl::StatusCode::kInvalidArgument);
  upload.reset();
  EXPECT_EQ((*group_.Read(0, NamedTarget("x")))[0], 'a');
  ASSERT_TRUE(Write(NamedTarget("x"), hidden_, 'c').ok());
  EXPECT_EQ((*group_.Read(0, NamedTarget("x")))[0], 'c');
}

TEST_F(TensorStreamTest, SizesAreCheckedBeforeAndAfter) {
  auto upload = *Begin(NamedTarget("x"), hidden_);
  ASSERT_TRUE(upload->Append(std::string(40, 'x')).ok());
  const absl::Status status = upload->Append(std::string(9, 'x'));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("49 bytes were sent, the header says 48"));
  const int64_t before = ledger_->alive("private");
  v1::TensorHeader header = ToHeader(hidden_);
  header.set_size_bytes(uint64_t{1} << 40);
  EXPECT_EQ(TensorUpload::Begin(group_.shared_buffer(0), NamedTarget("x"), header).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger_->alive("private"), before);
}

TEST_F(TensorStreamTest, WhatDoesNotFitTheBufferIsRefused) {
  EXPECT_THAT(Message(Begin(NamedTarget("x"), gate_).status()), HasSubstr("bfloat16 [n, 8]"));
  EXPECT_FALSE(Begin(NamedTarget(""), hidden_).ok());
  EXPECT_FALSE(Begin(PlanTensorTarget("p", "dst"), hidden_).ok());
  EXPECT_THAT(Message(Begin(WeightsTarget(1, 5, kGate), down_).status()),
              HasSubstr("expected bfloat16 [2, 8, 16]"));
  EXPECT_FALSE(Begin(WeightsTarget(2, 5, kGate), gate_).ok());
  EXPECT_FALSE(Begin(WeightsTarget(1, 0, kGate), gate_).ok());
  EXPECT_FALSE(Begin(WeightsTarget(1, 5, v1::WeightTarget::KIND_UNSPECIFIED), gate_).ok());
  EXPECT_EQ(Home(1).version, 0u);
}

TEST_F(TensorStreamTest, WeightsHaveAVersionWhenAllThreeAreComplete) {
  ASSERT_TRUE(WriteWeights(5, kGate, 'g').ok());
  ASSERT_TRUE(WriteWeights(5, kUp, 'u').ok());
  EXPECT_EQ(Home(1).version, 0u);
  EXPECT_EQ(ReasonOf(group_.Read(0, WeightsTarget(1, 5, kUp)).status()), kReasonStaleObject);
  ASSERT_TRUE(WriteWeights(5, kDown, 'd').ok());
  EXPECT_EQ(Home(1).version, 5u);
  EXPECT_EQ(Home(1).layer, 1);
  EXPECT_EQ(Home(0).version, 0u);
  EXPECT_EQ(*group_.Read(0, WeightsTarget(1, 5, kGate)), std::string(gate_.size_bytes, 'g'));
  EXPECT_EQ(*group_.Read(0, WeightsTarget(1, 5, kUp)), std::string(gate_.size_bytes, 'u'));
  EXPECT_EQ(*group_.Read(0, WeightsTarget(1, 5, kDown)), std::string(down_.size_bytes, 'd'));
}

TEST_F(TensorStreamTest, WeightsAreVersionZeroFromTheFirstByteOfAnother) {
  for (const auto kind : {kGate, kUp, kDown}) ASSERT_TRUE(WriteWeights(5, kind, 'a').ok());
  auto upload = *Begin(WeightsTarget(1, 6, kUp), gate_);
  EXPECT_EQ(Home(1).version, 0u);
  EXPECT_EQ(Begin(WeightsTarget(1, 6, kUp), gate_).status().code(), absl::StatusCode::kAborted);
  upload.reset();
  EXPECT_EQ(Home(1).version, 0u);
  for (const auto kind : {kGate, kUp, kDown}) ASSERT_TRUE(WriteWeights(6, kind, 'b').ok());
  EXPECT_EQ(Home(1).version, 6u);
}

v1::TensorTarget GradientTargetOf(v1::WeightTarget::Kind kind, int32_t layer, bool slots) {
  v1::TensorTarget target;
  target.mutable_gradients()->set_kind(kind);
  target.mutable_gradients()->set_layer(layer);
  target.mutable_gradients()->set_slots(slots);
  return target;
}

TEST_F(TensorStreamTest, EveryMatrixOfGradientsHasAPlaceOfItsOwn) {
  const TensorSpec gate = MakeTensorSpec(v1::TENSOR_DTYPE_FLOAT32, {2, 8, 16});
  const TensorSpec down = MakeTensorSpec(v1::TENSOR_DTYPE_FLOAT32, {2, 16, 8});
  const auto for_all = [&](const std::function<void(const v1::TensorTarget&, char)>& body) {
    char fill = 'a';
    for (v1::WeightTarget::Kind kind : {kGate, kUp, kDown}) {
      body(GradientTargetOf(kind, 0, true), fill++);
      for (int32_t layer : {0, 1}) body(GradientTargetOf(kind, layer, false), fill++);
    }
  };
  for_all([&](const v1::TensorTarget& target, char) {
    EXPECT_EQ(*group_.Read(0, target), std::string(gate.size_bytes, '\0')) << "zero at first";
  });
  for_all([&](const v1::TensorTarget& target, char fill) {
    const bool is_down = target.gradients().kind() == kDown;
    ASSERT_TRUE(Write(target, is_down ? down : gate, fill).ok());
  });
  for_all([&](const v1::TensorTarget& target, char fill) {
    EXPECT_EQ(*group_.Read(0, target), std::string(gate.size_bytes, fill));
  });
  EXPECT_THAT(Message(Write(GradientTargetOf(kDown, 0, false), gate, 'x')),
              HasSubstr("the gradients are float32 [2, 8, 16], expected float32 [2, 16, 8]"));
  EXPECT_THAT(Message(Write(GradientTargetOf(kGate, 2, false), gate, 'x')),
              HasSubstr("layer of gradients is 2, expected 0 to 1"));
  EXPECT_THAT(Message(group_.Read(0, GradientTargetOf(kGate, 1, true)).status()),
              HasSubstr("layer of gradients in slots is 1, expected 0 to 0"));
}

TEST_F(TensorStreamTest, WritesAndReadsAreRefusedWhileAProgramRuns) {
  ASSERT_TRUE(Write(NamedTarget("x"), hidden_, 'a').ok());
  auto tensor = *Begin(NamedTarget("x"), hidden_);
  auto weights = *Begin(WeightsTarget(1, 5, kUp), gate_);
  auto download = *TensorDownload::Begin(group_.shared_buffer(0), NamedTarget("x"));
  path_->set_behaviour([&](const std::string&, Sequence sequence) {
    return path_->AwaitAbort(Operation::kBarrier, sequence);
  });
  group_.StartProgram("operations { barrier {} }");
  path_->AwaitWaiter();
  for (const absl::Status& status :
       {Write(NamedTarget("y"), hidden_, 'b'), tensor->Append("bb"), weights->Append("bb"),
        group_.Read(0, NamedTarget("x")).status(), download->Next(8).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("program 1 is running"));
  }
  // An upload that is given up meanwhile does not stay in the way.
  weights.reset();
  group_.session(0).Cancel(1);
  group_.AwaitOutcomes();
  EXPECT_TRUE(Begin(WeightsTarget(1, 6, kUp), gate_).ok());
}

TEST_F(TensorStreamTest, AReaderNoticesThatItsTensorWasReplaced) {
  ASSERT_TRUE(Write(NamedTarget("x"), hidden_, 'a').ok());
  auto download = *TensorDownload::Begin(group_.shared_buffer(0), NamedTarget("x"));
  EXPECT_EQ(*download->Next(2), "aa");
  ASSERT_TRUE(Write(NamedTarget("x"), hidden_, 'b').ok());
  EXPECT_EQ(download->Next(2).status().code(), absl::StatusCode::kAborted);
}

TEST_F(TensorStreamTest, AClosedBufferEndsEveryStreamAndKeepsNothing) {
  ASSERT_TRUE(Write(NamedTarget("x"), hidden_, 'a').ok());
  auto download = *TensorDownload::Begin(group_.shared_buffer(0), NamedTarget("x"));
  auto weights = *Begin(WeightsTarget(1, 5, kUp), gate_);
  group_.session(0).Abort({}, "over");
  ASSERT_TRUE(group_.session(0).Close().ok());
  EXPECT_EQ(ledger_->alive("read_only"), 0);
  EXPECT_EQ(ledger_->alive("private"), 0);
  EXPECT_EQ(download->Next(2).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(weights->Append("x").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(weights->Finish().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TensorStreamTest, ThePlansTensorsCanBeRead) {
  ASSERT_TRUE(Write(NamedTarget("x"), hidden_, 'a').ok());
  ASSERT_TRUE(Write(NamedTarget("t"), MakeTensorSpec(v1::TENSOR_DTYPE_INT32, {3, 2}), 0).ok());
  const ProgramOutcome outcome =
      group_.Execute(R"(operations { dispatch { hidden: "x" topk_experts: "t" plan: "p" } })")[0];
  ASSERT_EQ(outcome.status.code(), 0) << outcome.status.message();
  const std::pair<const char*, size_t> sizes[] = {
      {"dst", 8},  {"cu_seqlens", 4},   {"zero_fill_ranges", 8}, {"experts_to_copy", 2},
      {"load", 1}, {"remote_stats", 2}, {"duplicate_groups", 0}, {"duplicate_rows", 0}};
  for (const auto& [name, count] : sizes) {
    absl::StatusOr<std::string> bytes = group_.Read(0, PlanTensorTarget("p", name));
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(bytes->size(), count * sizeof(int32_t)) << name;
  }
  EXPECT_THAT(Message(group_.Read(0, PlanTensorTarget("p", "nothing")).status()),
              HasSubstr("cu_seqlens"));
  EXPECT_EQ(ReasonOf(group_.Read(0, PlanTensorTarget("q", "dst")).status()), kReasonStaleObject);
}

}  // namespace
}  // namespace perigee
