#include "client/lib/rank_tensors.h"

#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/defaults.h"
#include "proto/support/grpc_server.h"
#include "proto/v1/worker.grpc.pb.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

// Keeps what is written under a word for its target, and gives it back.
class FakeWorker final : public v1::WorkerService::Service {
 public:
  struct Stored {
    v1::TensorTarget target;
    v1::TensorHeader header;
    std::string bytes;
  };

  grpc::Status WriteTensor(grpc::ServerContext*, grpc::ServerReader<v1::WriteTensorRequest>* reader,
                           v1::WriteTensorResponse*) override {
    Stored stored;
    v1::WriteTensorRequest message;
    for (bool first = true; reader->Read(&message); first = false) {
      if (first) stored = {message.target(), message.header(), ""};
      if (message.data().size() > kTensorChunkBytes) {
        return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "chunk too large");
      }
      stored.bytes += message.data();
      if (refuse) return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "generation 9 lives");
    }
    std::lock_guard lock(mutex);
    const v1::TensorTarget& target = stored.target;
    kept[target.has_weights() ? v1::WeightTarget::Kind_Name(target.weights().kind())
                              : target.tensor()] = stored;
    return grpc::Status::OK;
  }

  grpc::Status ReadTensor(grpc::ServerContext*, const v1::ReadTensorRequest* request,
                          grpc::ServerWriter<v1::ReadTensorResponse>* writer) override {
    std::lock_guard lock(mutex);
    const auto found = kept.find(request->target().tensor());
    if (found == kept.end()) return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such tensor");
    v1::ReadTensorResponse message;
    *message.mutable_header() = found->second.header;
    writer->Write(message);
    message.clear_header();
    const std::string& bytes = found->second.bytes;
    for (size_t at = 0; at < bytes.size() - cut_bytes; at += kTensorChunkBytes) {
      message.set_data(
          bytes.substr(at, std::min(kTensorChunkBytes, bytes.size() - cut_bytes - at)));
      writer->Write(message);
    }
    return grpc::Status::OK;
  }

  std::mutex mutex;
  std::map<std::string, Stored> kept;
  bool refuse = false;
  size_t cut_bytes = 0;
};

class RankTensorsTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    group_.set_generation(7);
    for (int rank = 0; rank < kRanks; ++rank) {
      auto server = GrpcServer::Start({.address = "127.0.0.1:0", .services = {&workers_[rank]}});
      ASSERT_TRUE(server.ok()) << server.status();
      servers_[rank] = *std::move(server);
      v1::GroupMember* member = group_.add_members();
      member->set_rank(rank);
      member->set_worker(absl::StrCat("workers/w", rank));
      member->set_address(servers_[rank]->address());
    }
    tensors_ = std::make_unique<RankTensors>(group_, "b", stop_.get_token());
  }

  FakeWorker workers_[kRanks];
  std::unique_ptr<GrpcServer> servers_[kRanks];
  v1::Group group_;
  std::stop_source stop_;
  std::unique_ptr<RankTensors> tensors_;
};

Tensor Counting(std::vector<int64_t> shape) {
  Tensor tensor{v1::TENSOR_DTYPE_BFLOAT16, shape, {}};
  tensor.data.resize(TensorBytes(tensor.dtype, shape));
  uint8_t next = 1;
  for (std::byte& byte : tensor.data) byte = std::byte(next = static_cast<uint8_t>(next * 5 + 1));
  return tensor;
}

TEST_F(RankTensorsTest, LongTensorsTravelInChunksAndComeBackEqual) {
  const Tensor sent = Counting({3, 500000});
  ASSERT_TRUE(tensors_->Write(RankId(1), "hidden", sent.view()).ok());
  EXPECT_EQ(workers_[1].kept["hidden"].target.generation(), 7u);
  EXPECT_TRUE(workers_[0].kept.empty());
  const auto received = tensors_->Read(RankId(1), "hidden");
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->shape, sent.shape);
  EXPECT_EQ(received->data, sent.data);
}

TEST_F(RankTensorsTest, EmptyTensorsTravelToo) {
  ASSERT_TRUE(tensors_->Write(RankId(0), "hidden", Counting({0, 16}).view()).ok());
  const auto received = tensors_->Read(RankId(0), "hidden");
  ASSERT_TRUE(received.ok()) << received.status();
  EXPECT_EQ(received->shape, (std::vector<int64_t>{0, 16}));
}

TEST_F(RankTensorsTest, EachRankGetsItsHomeExperts) {
  const Tensor gate = Counting({4, 2, 3}), up = Counting({4, 2, 3}), down = Counting({4, 3, 2});
  ASSERT_TRUE(tensors_->LoadLayer(2, 5, {gate.view(), up.view(), down.view()}).ok());
  const FakeWorker::Stored& stored = workers_[1].kept["DOWN"];
  EXPECT_EQ(stored.target.weights().layer(), 2);
  EXPECT_EQ(stored.target.weights().version(), 5u);
  EXPECT_EQ(stored.header.shape(0), 2);
  ASSERT_EQ(stored.bytes.size(), 24u);
  EXPECT_EQ(std::memcmp(stored.bytes.data(), down.data.data() + 24, 24), 0);
}

TEST_F(RankTensorsTest, ARefusalNamesRankWorkerAndReason) {
  workers_[1].refuse = true;
  const absl::Status status = tensors_->Write(RankId(1), "hidden", Counting({3, 500000}).view());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (workers/w1 at 127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("generation 9 lives"));
}

TEST_F(RankTensorsTest, AShortAnswerIsNotTaken) {
  ASSERT_TRUE(tensors_->Write(RankId(0), "out", Counting({8, 8}).view()).ok());
  workers_[0].cut_bytes = 1;
  EXPECT_TRUE(absl::IsDataLoss(tensors_->Read(RankId(0), "out").status()));
}

TEST_F(RankTensorsTest, AnExpertCountThatDoesNotDivideIsRefusedHere) {
  const Tensor odd = Counting({3, 2, 3});
  EXPECT_TRUE(
      absl::IsInvalidArgument(tensors_->LoadLayer(0, 1, {odd.view(), odd.view(), odd.view()})));
  EXPECT_TRUE(workers_[0].kept.empty());
}

TEST_F(RankTensorsTest, DataOfAnotherLengthIsRefusedHere) {
  Tensor tensor = Counting({4, 4});
  tensor.data.pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(tensors_->Write(RankId(0), "hidden", tensor.view())));
}

TEST_F(RankTensorsTest, AWorkerThatIsGoneIsUnavailable) {
  servers_[1]->Shutdown(absl::ZeroDuration());
  const absl::Status status = tensors_->ForEachRank([&](RankId rank) {
    return tensors_->Write(rank, "hidden", Counting({1, 8}).view());
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
}

TEST_F(RankTensorsTest, AStopRequestEndsTransfers) {
  stop_.request_stop();
  EXPECT_TRUE(absl::IsCancelled(tensors_->Write(RankId(0), "hidden", Counting({1, 8}).view())));
}

}  // namespace
}  // namespace perigee
