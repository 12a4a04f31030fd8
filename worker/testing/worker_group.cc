#include "worker/testing/worker_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/text_format.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "kernels/common/check.h"
#include "kernels/host/host_backend.h"
#include "worker/testing/session_group.h"

namespace perigee {

WorkerGroup::WorkerGroup(int32_t ranks) : workers_(ranks), stubs_(ranks) {
  for (int32_t rank = 0; rank < ranks; ++rank) Start(rank);
}

std::string WorkerGroup::Name(int32_t rank) { return absl::StrCat("workers/w", rank); }

WorkerOptions WorkerGroup::Options(int32_t rank) const {
  WorkerOptions options;
  options.name = absl::StrCat("w", rank);
  options.host = "here";
  options.coordinator = coordinator_.address();
  options.socket_dir = directory_.path();
  options.backend = CreateHostBackend();
  return options;
}

void WorkerGroup::Start(int32_t rank) {
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(Options(rank));
  EXPECT_TRUE(worker.ok()) << worker.status();
  PERIGEE_CHECK(worker.ok());
  workers_[rank] = *std::move(worker);
  stubs_[rank] = v1::WorkerService::NewStub(
      grpc::CreateChannel(workers_[rank]->address(), grpc::InsecureChannelCredentials()));
}

void WorkerGroup::Replace(int32_t rank) {
  workers_[rank].reset();
  Start(rank);
}

v1::WorkerCommand WorkerGroup::Command() const {
  v1::WorkerCommand command;
  command.set_group(kTestGroup);
  command.set_generation(generation_);
  return command;
}

std::vector<v1::CommandResult> WorkerGroup::OnAll(const std::vector<v1::WorkerCommand>& commands) {
  std::vector<uint64_t> ids;
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    ids.push_back(coordinator_.Send(Name(rank), commands[rank]));
  }
  return Await(ids);
}

void WorkerGroup::Form(uint64_t generation, const v1::BufferShape& shape) {
  generation_ = generation;
  last_sequence_ = 0;
  const auto ticket = [&](int32_t from, int32_t to) {
    return from == to ? std::string() : absl::StrFormat("%06d %4d %4d", generation, from, to);
  };
  std::vector<v1::WorkerCommand> open, allocate, connect;
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    open.push_back(Command());
    open.back().mutable_open_session()->set_rank(rank);
    allocate.push_back(Command());
    v1::Buffer& buffer = *allocate.back().mutable_allocate_buffer()->mutable_buffer();
    buffer.set_name(kTestBuffer);
    buffer.set_id(3);
    *buffer.mutable_shape() = shape;
    connect.push_back(Command());
    connect.back().mutable_connect_buffer()->set_buffer(kTestBuffer);
    for (int32_t peer = 0; peer < ranks(); ++peer) {
      v1::GroupMember& member = *open.back().mutable_open_session()->add_members();
      member.set_rank(peer);
      member.set_worker(Name(peer));
      member.set_incarnation(workers_[peer]->incarnation());
      member.set_address(workers_[peer]->address());
      member.set_socket_path(workers_[peer]->socket_path());
      allocate.back().mutable_allocate_buffer()->add_tickets(ticket(peer, rank));
      connect.back().mutable_connect_buffer()->add_tickets(ticket(rank, peer));
    }
  }
  for (const auto& commands : {open, allocate, connect}) {
    for (const v1::CommandResult& result : OnAll(commands)) {
      ASSERT_EQ(result.status().code(), 0) << result.status().message();
    }
  }
}

grpc::Status WorkerGroup::Write(int32_t rank, const LayerTensor& tensor) {
  grpc::ClientContext context;
  v1::WriteTensorResponse response;
  auto writer = stubs_[rank]->WriteTensor(&context, &response);
  v1::WriteTensorRequest request;
  *request.mutable_target() = tensor.target;
  request.mutable_target()->set_generation(generation_);
  *request.mutable_header() = tensor.header;
  bool open = writer->Write(request);
  request.Clear();
  request.set_data(tensor.bytes);
  if (open) open = writer->Write(request);
  if (open) writer->WritesDone();
  return writer->Finish();
}

void WorkerGroup::Load(const SmallLayer& layer) {
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    for (const auto& tensors : {layer.Inputs(rank), layer.Weights(rank)}) {
      for (const LayerTensor& tensor : tensors) {
        const grpc::Status status = Write(rank, tensor);
        ASSERT_TRUE(status.ok()) << status.error_message();
      }
    }
  }
}

WorkerGroup::ReadResult WorkerGroup::Read(int32_t rank, v1::TensorTarget target) {
  target.set_generation(generation_);
  grpc::ClientContext context;
  v1::ReadTensorRequest request;
  *request.mutable_target() = std::move(target);
  auto reader = stubs_[rank]->ReadTensor(&context, request);
  ReadResult result;
  v1::ReadTensorResponse response;
  while (reader->Read(&response)) result.bytes += response.data();
  result.status = reader->Finish();
  return result;
}

std::vector<uint64_t> WorkerGroup::Send(const std::string& program,
                                        const std::vector<int32_t>& ranks) {
  v1::WorkerCommand command = Command();
  v1::ExecuteProgramCommand& execute = *command.mutable_execute_program();
  execute.set_buffer(kTestBuffer);
  execute.set_program_id(++program_id_);
  execute.set_first_sequence(last_sequence_ + 1);
  PERIGEE_CHECK(google::protobuf::TextFormat::ParseFromString(program, execute.mutable_program()));
  std::vector<uint64_t> ids;
  for (const int32_t rank : ranks) ids.push_back(coordinator_.Send(Name(rank), command));
  return ids;
}

std::vector<v1::CommandResult> WorkerGroup::Await(const std::vector<uint64_t>& commands) {
  std::vector<v1::CommandResult> results;
  for (const uint64_t id : commands) {
    results.push_back(coordinator_.AwaitResult(id));
    last_sequence_ = std::max<uint64_t>(last_sequence_, results.back().progress().last_sequence());
  }
  return results;
}

std::vector<v1::CommandResult> WorkerGroup::Execute(const std::string& program) {
  std::vector<int32_t> all;
  for (int32_t rank = 0; rank < ranks(); ++rank) all.push_back(rank);
  return Await(Send(program, all));
}

}  // namespace perigee
