// Runs one operation of a remote group: each rank's tensors to its worker, a program of that
// operation, results back into the ranks' arenas.
#ifndef PERIGEE_CLIENT_LIB_REMOTE_STEPS_H_
#define PERIGEE_CLIENT_LIB_REMOTE_STEPS_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/lib/client.h"
#include "client/lib/rank_tensors.h"
#include "client/lib/remote_round.h"
#include "kernels/layout/client_arena.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/plan_arrays.h"
#include "proto/local/completion_record.h"
#include "proto/v1/error.pb.h"
#include "proto/v1/groups.pb.h"

namespace perigee {

// How a rank's own word, in a failure of `error`, reads as the completion of a local client.
LocalCompletion ToCompletion(const v1::RankStatus& rank, const v1::GroupError& error);

// From one thread at a time.
class RemoteSteps {
 public:
  // Borrows the client. group: ACTIVE. A stop request ends transfers.
  RemoteSteps(Client& client, const v1::Group& group, const std::string& buffer,
              const Geometry& geometry, int32_t hidden, std::stop_token stop);

  struct Outcome {
    std::vector<LocalCompletion> ranks;  // [R]
    // Whether workers know of it: else nothing there has changed.
    bool ran = true;
    // The generation has ended with it: nothing runs here any more.
    bool over = false;
  };
  // Of a round that has an operation. Blocks until it has ended on every rank. A failure that is of
  // no rank (the coordinator refused the program, or cannot be reached) is every rank's, with an
  // empty reason.
  Outcome Run(const RemoteRound& round, absl::Span<const ClientArenaView> arenas);

 private:
  bool IsRank(int32_t rank) const { return rank >= 0 && rank < geometry_.ranks; }
  absl::Status Write(RankId rank, const RemoteRound& round, const ClientArenaView& arena);
  absl::Status Read(RankId rank, const RemoteRound& round, uint64_t sequence,
                    const ClientArenaView& arena);
  absl::Status ReadPlan(RankId rank, const std::string& plan, uint64_t sequence,
                        const PlanArrays& view);
  absl::Status Fetch(absl::StatusOr<Tensor> tensor, const char* what, void* to, size_t bytes) const;
  Outcome Failed(absl::Status failure);
  Outcome TransferFailed(const std::vector<absl::Status>& statuses);
  bool GenerationHasEnded(const absl::Status& failure, v1::Group& seen);

  Client& client_;
  const v1::Group group_;
  const std::string buffer_;
  const Geometry geometry_;
  const int32_t hidden_;
  RankTensors tensors_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_REMOTE_STEPS_H_
