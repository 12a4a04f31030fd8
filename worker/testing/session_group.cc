#include "worker/testing/session_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernels/common/check.h"
#include "proto/support/clock.h"
#include "proto/support/random.h"
#include "worker/session/tensor_download.h"
#include "worker/session/tensor_upload.h"

namespace perigee {
namespace {

constexpr Generation kGeneration(7);

std::string WorkerOf(int32_t rank) { return absl::StrCat("workers/w", rank); }
uint64_t IncarnationOf(int32_t rank) { return 100 + rank; }

}  // namespace

SessionGroup::SessionGroup(int32_t ranks, const MakeBackend& make_backend,
                           const std::string& transport)
    : transport_(transport) {
  for (int32_t rank = 0; rank < ranks; ++rank) {
    Rank& made = *ranks_.emplace_back(std::make_unique<Rank>());
    made.backend = make_backend(rank);
    made.descriptors =
        *DescriptorServer::Start(absl::StrCat(directory_.path(), "/w", rank), RealClock());
    made.environment.reset(new SessionEnvironment{WorkerOf(rank), IncarnationOf(rank),
                                                  *made.backend, *made.descriptors, RealClock(),
                                                  made.budget, made.operations_done, 1});
  }
  for (int32_t rank = 0; rank < ranks; ++rank) {
    absl::StatusOr<std::shared_ptr<Session>> session =
        Session::Open(kTestGroup, kGeneration, OpenCommand(rank), *ranks_[rank]->environment);
    PERIGEE_CHECK(session.ok());
    ranks_[rank]->current.Exchange(*std::move(session));
  }
}

SessionGroup::~SessionGroup() {
  // Programs that wait for each other: all are told before any is waited for.
  for (const auto& rank : ranks_) {
    if (rank->current.Get()) rank->current.Get()->Abort({}, "the test ends");
  }
  for (const auto& rank : ranks_) rank->current.Exchange(nullptr);
}

std::string SessionGroup::Ticket(int32_t from, int32_t to) const {
  return from == to ? "" : absl::StrFormat("ticket %4d %4d", from, to);
}

v1::OpenSessionCommand SessionGroup::OpenCommand(int32_t rank) const {
  v1::OpenSessionCommand command;
  command.set_rank(rank);
  command.set_transport(transport_);
  for (int32_t r = 0; r < ranks(); ++r) {
    v1::GroupMember& member = *command.add_members();
    member.set_rank(r);
    member.set_worker(WorkerOf(r));
    member.set_incarnation(Hex64(IncarnationOf(r)));
    member.set_socket_path(ranks_[r]->descriptors->path());
  }
  return command;
}

v1::AllocateBufferCommand SessionGroup::AllocateCommand(int32_t rank,
                                                        const v1::BufferShape& shape) const {
  v1::AllocateBufferCommand command;
  command.mutable_buffer()->set_name(kTestBuffer);
  command.mutable_buffer()->set_id(3);
  *command.mutable_buffer()->mutable_shape() = shape;
  for (int32_t peer = 0; peer < ranks(); ++peer) command.add_tickets(Ticket(peer, rank));
  return command;
}

v1::ConnectBufferCommand SessionGroup::ConnectCommand(int32_t rank) const {
  v1::ConnectBufferCommand command;
  command.set_buffer(kTestBuffer);
  for (int32_t peer = 0; peer < ranks(); ++peer) command.add_tickets(Ticket(rank, peer));
  command.mutable_timeout()->set_seconds(20);
  return command;
}

void SessionGroup::MakeBuffer(const v1::BufferShape& shape, const v1::Buffer& options) {
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    v1::AllocateBufferCommand command = AllocateCommand(rank, shape);
    command.mutable_buffer()->MergeFrom(options);
    absl::StatusOr<uint64_t> bytes = session(rank).AllocateBuffer(command);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_GT(*bytes, 0u);
  }
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    const absl::Status status = session(rank).ConnectBuffer(ConnectCommand(rank));
    ASSERT_TRUE(status.ok()) << status;
  }
}

void SessionGroup::StartProgram(const std::string& program) {
  v1::ExecuteProgramCommand command;
  command.set_buffer(kTestBuffer);
  command.set_program_id(++program_id_);
  command.set_first_sequence(last_sequence_ + 1);
  PERIGEE_CHECK(google::protobuf::TextFormat::ParseFromString(program, command.mutable_program()));
  for (int32_t rank = 0; rank < ranks(); ++rank) {
    const auto on_outcome = [this, rank](const ProgramOutcome& outcome) {
      std::lock_guard<std::mutex> lock(mutex_);
      outcomes_[rank] = outcome;
      changed_.notify_all();
    };
    const absl::Status status = session(rank).Execute(command, nullptr, on_outcome);
    ASSERT_TRUE(status.ok()) << status;
  }
}

std::vector<ProgramOutcome> SessionGroup::AwaitOutcomes() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return outcomes_.size() == ranks_.size(); });
  std::vector<ProgramOutcome> outcomes;
  for (auto& [rank, outcome] : outcomes_) {
    last_sequence_ = std::max<uint64_t>(last_sequence_, outcome.progress.last_sequence());
    outcomes.push_back(std::move(outcome));
  }
  outcomes_.clear();
  return outcomes;
}

std::vector<ProgramOutcome> SessionGroup::Execute(const std::string& program) {
  StartProgram(program);
  return AwaitOutcomes();
}

absl::Status SessionGroup::Write(int32_t rank, const v1::TensorTarget& target,
                                 const v1::TensorHeader& header,
                                 absl::Span<const std::byte> bytes) {
  absl::StatusOr<std::unique_ptr<TensorUpload>> upload =
      TensorUpload::Begin(shared_buffer(rank), target, header);
  if (!upload.ok()) return upload.status();
  absl::Status status = (*upload)->Append(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return status.ok() ? (*upload)->Finish() : status;
}

absl::StatusOr<std::string> SessionGroup::Read(int32_t rank, const v1::TensorTarget& target) {
  absl::StatusOr<std::unique_ptr<TensorDownload>> download =
      TensorDownload::Begin(shared_buffer(rank), target);
  if (!download.ok()) return download.status();
  std::string all;
  while (true) {
    absl::StatusOr<std::string> bytes = (*download)->Next(1000);
    if (!bytes.ok()) return bytes.status();
    if (bytes->empty()) return all;
    all += *bytes;
  }
}

v1::TensorTarget NamedTarget(const std::string& tensor) {
  v1::TensorTarget target;
  target.set_buffer(kTestBuffer);
  target.set_generation(kGeneration.value);
  target.set_tensor(tensor);
  return target;
}

v1::TensorTarget WeightsTarget(int32_t layer, uint64_t version, v1::WeightTarget::Kind kind) {
  v1::TensorTarget target = NamedTarget("");
  target.mutable_weights()->set_layer(layer);
  target.mutable_weights()->set_version(version);
  target.mutable_weights()->set_kind(kind);
  return target;
}

v1::TensorTarget PlanTensorTarget(const std::string& plan, const std::string& tensor) {
  v1::TensorTarget target = NamedTarget("");
  target.mutable_plan()->set_plan(plan);
  target.mutable_plan()->set_tensor(tensor);
  return target;
}

}  // namespace perigee
