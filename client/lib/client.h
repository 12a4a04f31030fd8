// The client of a coordinator: what a program that uses groups calls. Thin: it fills requests and
// follows page tokens; the Connection decides about deadlines and repetition. Tensors go straight
// to the workers: client/lib/rank_tensors.h.
#ifndef PERIGEE_CLIENT_LIB_CLIENT_H_
#define PERIGEE_CLIENT_LIB_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/lib/connection.h"
#include "client/lib/grpc_connection.h"
#include "kernels/common/ids.h"

namespace perigee {

struct GroupOptions {
  std::string group_id = "";  // empty: the server chooses
  int32_t ranks = 0;
  std::string backend = "host";
  std::string transport = "nvlink";       // or nccl, with backend cuda
  std::vector<std::string> workers = {};  // in order of rank; empty: the server chooses
};

struct BufferOptions {
  std::string buffer_id = "";  // empty: the server chooses
  v1::BufferShape shape = {};
  absl::Duration operation_timeout = absl::ZeroDuration();  // zero: the server's default
  absl::Duration warmup_timeout = absl::ZeroDuration();     // of the first operation; likewise
  // Backend cuda; what they mean: v1::Buffer.
  int32_t sms = 0;
  int32_t local_sms = 0;
  bool programmatic_launch = true;
  bool high_priority_stream = false;
};

// How long a running program may stay silent.
inline constexpr absl::Duration kProgramIdleTimeout = absl::Minutes(2);

// Thread-safe. Calls block. Names of groups, buffers and workers are full resource names; a failure
// of ranks carries a GroupError (client/lib/group_error.h).
class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ConnectOptions& options);
  explicit Client(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}

  absl::StatusOr<v1::Worker> GetWorker(const std::string& name);
  absl::StatusOr<std::vector<v1::Worker>> ListWorkers();

  // Each returns when the group or buffer is ACTIVE.
  absl::StatusOr<v1::Group> CreateGroup(const GroupOptions& options);
  absl::StatusOr<v1::Buffer> CreateBuffer(const std::string& group, const BufferOptions& options);

  absl::StatusOr<v1::Group> GetGroup(const std::string& name);
  absl::StatusOr<std::vector<v1::Group>> ListGroups();
  absl::StatusOr<v1::Group> DrainGroup(const std::string& name);
  absl::Status DeleteGroup(const std::string& name);
  // Calls on_group with the group now and after every change, until it returns false.
  absl::Status WatchGroup(const std::string& name, absl::Duration timeout,
                          absl::FunctionRef<bool(const v1::Group&)> on_group);
  // The group once it is ACTIVE at a generation after `last`. DEADLINE_EXCEEDED says what it was
  // waiting for; FAILED_PRECONDITION: the group was closed meanwhile.
  absl::StatusOr<v1::Group> WaitForNextGeneration(const std::string& name, Generation last,
                                                  absl::Duration timeout);

  absl::StatusOr<v1::Buffer> GetBuffer(const std::string& name);
  // Of one group, or of all where it is empty.
  absl::StatusOr<std::vector<v1::Buffer>> ListBuffers(const std::string& group);
  absl::Status DeleteBuffer(const std::string& name);

  // For a LocalClient (client/lib/local_client.h). Generation 0: whichever lives.
  absl::StatusOr<v1::AttachTicket> IssueAttachTicket(const std::string& buffer,
                                                     Generation generation, RankId rank);

  absl::StatusOr<v1::GenerationInfo> GetGeneration(const std::string& name);
  // Newest first.
  absl::StatusOr<std::vector<v1::GenerationInfo>> ListGenerations(const std::string& group);

  // `count` publication tokens, 1 to 1024, for one rank; generation 0: whichever lives. A
  // request_id that is repeated within an hour gets the same ones; empty: a new one.
  absl::StatusOr<v1::IssueTokensResponse> IssueTokens(const std::string& buffer,
                                                      Generation generation, RankId rank,
                                                      int32_t count, const std::string& request_id);
  // `name` is that of a generation.
  absl::StatusOr<v1::TokenLedger> GetTokenLedger(const std::string& name);

  // Runs a program on every rank and returns when it has ended everywhere. on_progress is called
  // from this thread. path_choice: which path its rows take, to be seen with the buffer; null: what
  // stands there stays.
  absl::Status ExecuteProgram(
      const std::string& buffer, Generation generation, const v1::Program& program,
      absl::FunctionRef<void(const v1::ExecuteProgramResponse&)> on_progress,
      const v1::PathChoice* path_choice = nullptr);

 private:
  const std::unique_ptr<Connection> connection_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_CLIENT_H_
