// WorkerService over gRPC; what a tensor may be is tested with TensorUpload and TensorDownload.
#include "worker/rpc/worker_service.h"

#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proto/support/grpc_server.h"
#include "proto/v1/error.pb.h"
#include "worker/ops/tensor_spec.h"
#include "worker/testing/fake_backend.h"
#include "worker/testing/session_group.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WorkerServiceTest : public ::testing::Test {
 protected:
  WorkerServiceTest() : group_(1, [](int32_t) { return std::make_unique<FakeBackend>(); }) {
    v1::BufferShape shape;
    shape.set_tokens(1 << 16);
    shape.set_hidden(32);
    shape.set_topk(2);
    shape.set_experts(2);
    shape.set_token_padding(1);
    shape.set_intermediate(8);
    shape.set_layers(1);
    group_.MakeBuffer(shape);
    Serve(absl::Seconds(30));
  }
  void Serve(absl::Duration idle_timeout) {
    server_.reset();
    service_ = std::make_unique<WorkerService>(group_.current(0), idle_timeout);
    server_ = *GrpcServer::Start({"127.0.0.1:0", {service_.get()}});
    stub_ = v1::WorkerService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  v1::WriteTensorRequest First(const v1::TensorTarget& target, const TensorSpec& spec) {
    v1::WriteTensorRequest request;
    *request.mutable_target() = target;
    *request.mutable_header() = ToHeader(spec);
    return request;
  }
  v1::WriteTensorRequest Chunk(const std::string& data) {
    v1::WriteTensorRequest request;
    request.set_data(data);
    return request;
  }
  // The end of a call that sends these messages.
  grpc::Status Write(const std::vector<v1::WriteTensorRequest>& messages) {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientWriter<v1::WriteTensorRequest>> writer =
        stub_->WriteTensor(&context, &response_);
    for (const v1::WriteTensorRequest& message : messages) {
      if (!writer->Write(message)) break;
    }
    writer->WritesDone();
    grpc::Status status = writer->Finish();
    detail_.Clear();
    const auto found = context.GetServerTrailingMetadata().find("perigee-error-bin");
    if (found != context.GetServerTrailingMetadata().end()) {
      detail_.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()));
    }
    return status;
  }
  struct ReadResult {
    grpc::Status status;
    v1::TensorHeader header;
    std::string bytes;
    int messages = 0;
  };
  ReadResult Read(const v1::TensorTarget& target) {
    grpc::ClientContext context;
    v1::ReadTensorRequest request;
    *request.mutable_target() = target;
    ReadResult result;
    v1::ReadTensorResponse response;
    std::unique_ptr<grpc::ClientReader<v1::ReadTensorResponse>> reader =
        stub_->ReadTensor(&context, request);
    while (reader->Read(&response)) {
      ++result.messages;
      EXPECT_LE(response.data().size(), size_t{1} << 20);
      if (response.has_header()) result.header = response.header();
      result.bytes += response.data();
    }
    result.status = reader->Finish();
    return result;
  }

  const TensorSpec small_ = MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {2, 32});  // 128 bytes
  SessionGroup group_;
  std::unique_ptr<WorkerService> service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  v1::WriteTensorResponse response_;
  v1::RankStatus detail_;
};

TEST_F(WorkerServiceTest, ALargeTensorGoesInAndOutInChunks) {
  const TensorSpec spec = MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {50000, 32});
  std::string bytes(spec.size_bytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 997);
  std::vector<v1::WriteTensorRequest> messages = {First(NamedTarget("x"), spec)};
  for (size_t at = 0; at < bytes.size(); at += 1 << 20) {
    messages.push_back(Chunk(bytes.substr(at, 1 << 20)));
  }
  const grpc::Status status = Write(messages);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response_.size_bytes(), bytes.size());
  const ReadResult read = Read(NamedTarget("x"));
  ASSERT_TRUE(read.status.ok()) << read.status.error_message();
  EXPECT_EQ(Describe(*ParseTensorHeader(read.header)), "bfloat16 [50000, 32]");
  EXPECT_EQ(read.messages, 5);
  EXPECT_TRUE(read.bytes == bytes);
}

TEST_F(WorkerServiceTest, AnotherGenerationIsRefusedNamingBoth) {
  v1::TensorTarget target = NamedTarget("x");
  target.set_generation(6);
  const grpc::Status status = Write({First(target, small_)});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("generation 6"), HasSubstr("generation 7")));
  EXPECT_EQ(detail_.reason(), "STALE_OBJECT");
  EXPECT_EQ(Read(target).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(WorkerServiceTest, BadNamesAreRefused) {
  v1::TensorTarget target = NamedTarget("x");
  target.set_buffer("buffers/b");
  EXPECT_EQ(Write({First(target, small_)}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  target.set_buffer("tenants/default/groups/g/buffers/other");
  EXPECT_EQ(Read(target).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Read(NamedTarget("absent")).status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(WorkerServiceTest, BrokenStreamsAreRefused) {
  const v1::WriteTensorRequest first = First(NamedTarget("x"), small_);
  EXPECT_EQ(Write({}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Write({Chunk("x")}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Write({first, first}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::Status status = Write({first, Chunk(std::string(127, 'x'))});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("127 bytes were sent, the header says 128"));
  status = Write({first, Chunk(std::string(129, 'x'))});
  EXPECT_THAT(status.error_message(), HasSubstr("129 bytes were sent, the header says 128"));
  status = Write({first, Chunk(std::string((1 << 20) + 1, 'x'))});
  EXPECT_THAT(status.error_message(), HasSubstr("expected at most 1048576"));
  EXPECT_FALSE(Read(NamedTarget("x")).status.ok());
  EXPECT_TRUE(Write({first, Chunk(std::string(128, 'x'))}).ok());
}

TEST_F(WorkerServiceTest, AFailedLoadMayBeTriedAgainAtOnce) {
  const TensorSpec gate = MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {2, 32, 8});
  const auto first = First(WeightsTarget(0, 4, v1::WeightTarget::GATE), gate);
  for (int attempt = 0; attempt < 20; ++attempt) {
    const grpc::Status status = Write({first, Chunk("too little")});
    ASSERT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  }
  EXPECT_TRUE(Write({first, Chunk(std::string(gate.size_bytes, 'x'))}).ok());
}

TEST_F(WorkerServiceTest, AClientThatGoesAwayLeavesNothing) {
  const TensorSpec gate = MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {2, 32, 8});
  const auto first = First(WeightsTarget(0, 4, v1::WeightTarget::GATE), gate);
  {
    grpc::ClientContext context;
    auto writer = stub_->WriteTensor(&context, &response_);
    ASSERT_TRUE(writer->Write(first));
    context.TryCancel();
    EXPECT_FALSE(writer->Finish().ok());
  }
  // The server hears of it a little later.
  grpc::Status status;
  do {
    status = Write({first, Chunk(std::string(gate.size_bytes, 'x'))});
  } while (status.error_code() == grpc::StatusCode::ABORTED);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(WorkerServiceTest, ASilentStreamEnds) {
  Serve(absl::Milliseconds(50));
  grpc::ClientContext context;
  auto writer = stub_->WriteTensor(&context, &response_);
  ASSERT_TRUE(writer->Write(First(NamedTarget("x"), small_)));
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("silent for 50ms"));
}

}  // namespace
}  // namespace perigee
