// All ranks of a buffer, each as a RankClient, from one process anywhere: what the ranks submit
// becomes programs, tensors stream between this process and the workers.
//
// A program is collective: the coordinator runs it on every rank. So an operation goes on its way
// when the last rank has submitted it, as a program of that operation alone: a thread of the
// clients' own writes the ranks' tokens, has the program run, and reads the results before the
// completions are there. Take it for control and for trials; whole lists of operations, and many
// times, run as one program (Client::ExecuteProgram).
//
// What is the same as with local clients: shapes, order, plans by number, completions with reason
// and place, kCommandSlots commands under way, a group that goes on after what all ranks leave
// together and is over after a loss. What differs:
//   - there is no shard in reach (RankMemory.rows is empty)
//   - run_experts, prepare_publication and store_rows are one program as well: every rank submits
//   it,
//     or none
//   - RankMemory.plan has no target's plan before that is published
//   - a publication whose token has expired holds the shard until it is published, and refused
//   - other clients' programs may run in between, and there is no period to keep them out: they
//     must not use names that begin with "rank-client/"
#ifndef PERIGEE_CLIENT_LIB_REMOTE_RANKS_H_
#define PERIGEE_CLIENT_LIB_REMOTE_RANKS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/lib/client.h"
#include "client/lib/rank_client.h"
#include "proto/support/clock.h"
#include "proto/support/defaults.h"

namespace perigee {

struct RemoteRanksOptions {
  // How long a rank's operation waits for other ranks to submit theirs; then it is DEADLINE, naming
  // the first that did not, and these clients are over. Nothing has been run: the generation lives.
  absl::Duration rank_timeout = kOperationTimeout;
  const Clock* clock = &RealClock();  // outlives the clients
};

// [R] in order of rank, in the generation that lives. The client outlives them; the last one that
// is destroyed waits for the operation under way. NOT_FOUND; FAILED_PRECONDITION: the buffer is not
// ACTIVE.
absl::StatusOr<std::vector<std::unique_ptr<RankClient>>> OpenRemoteRanks(
    Client& client, const std::string& buffer, const RemoteRanksOptions& options = {});

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_REMOTE_RANKS_H_
