// What the tests of lost workers share: a run, of 8 ranks unless told otherwise, that is in the
// middle of its iterations, and what its users see when a rank is lost.
#ifndef PERIGEE_TESTS_INTEGRATION_LOSS_FIXTURE_H_
#define PERIGEE_TESTS_INTEGRATION_LOSS_FIXTURE_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/cluster_fixture.h"

namespace perigee {

class LossTest : public ClusterTest {
 protected:
  // A run that goes on for long enough, and is in the middle of it.
  std::unique_ptr<Process> LongRun(const std::vector<std::string>& more,
                                   int iterations = 100000) const;
  // Kills a worker and waits until each of `ranks` has named it, the lost one's own included.
  static void KillAndAwaitEveryRank(Process& run, pid_t worker, int lost_rank, int ranks = 8);
  // Of a run with --on-loss wait and --json, after that: it continues with a new worker of the same
  // name, passes, and went through two generations.
  static void ExpectGoesOn(Process& run, int lost_rank);
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_INTEGRATION_LOSS_FIXTURE_H_
