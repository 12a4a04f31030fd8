// A process that is the embedded worker of one rank, for tests that kill it: says "ready" when the
// worker is registered, attaches to its rank as soon as it may, says "attached", and passes
// barriers until one fails.
//
//   embedded_rank_process COORDINATOR NAME BUFFER RANK
#include <cstdio>
#include <cstdlib>

#include "absl/time/clock.h"
#include "client/lib/client.h"
#include "kernels/host/host_backend.h"
#include "worker/embedded/embedded_worker.h"

namespace perigee {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

absl::Status PassBarriers(char** argv) {
  WorkerOptions options;
  options.name = argv[2];
  options.coordinator = argv[1];
  options.backend = CreateHostBackend();
  const absl::StatusOr<std::unique_ptr<EmbeddedWorker>> worker =
      EmbeddedWorker::Start(std::move(options));
  if (!worker.ok()) return worker.status();
  std::printf("ready\n");
  std::fflush(stdout);
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect({.address = argv[1]});
  if (!client.ok()) return client.status();
  const absl::Time until = absl::Now() + kLong;
  absl::StatusOr<v1::AttachTicket> ticket = absl::NotFoundError("not asked for");
  while (!ticket.ok() && absl::Now() < until) {
    ticket = (*client)->IssueAttachTicket(argv[3], Generation(), RankId(std::atoi(argv[4])));
  }
  if (!ticket.ok()) return ticket.status();
  const absl::StatusOr<std::unique_ptr<RankClient>> rank = (*worker)->Attach(*ticket);
  if (!rank.ok()) return rank.status();
  std::printf("attached\n");
  std::fflush(stdout);
  absl::StatusOr<LocalCompletion> done = LocalCompletion();
  while (done.ok() && done->status.ok()) done = (*rank)->Run(LocalBarrier{}, kLong);
  return done.ok() ? done->status : done.status();
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const absl::Status status = perigee::PassBarriers(argv);
  std::fprintf(stderr, "embedded_rank_process: %s\n", status.ToString().c_str());
  return 1;
}
