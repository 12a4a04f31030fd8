// Which operations of a program wait for which, and whether those that use the same thing are
// ordered.
#ifndef PERIGEE_WORKER_OPS_PROGRAM_WAITS_H_
#define PERIGEE_WORKER_OPS_PROGRAM_WAITS_H_

#include <bitset>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/v1/program.pb.h"
#include "worker/ops/program_check.h"

namespace perigee {

// Immutable.
class ProgramWaits {
 public:
  // Each operation waits for all before it.
  ProgramWaits() = default;
  // Of a program that CheckProgram has accepted. INVALID_PROGRAM, naming the operations: waits_for
  // without ordered_by_waits; an index that is not of an operation before it; two operations that
  // use the same thing, one of them changing it, of which the later does not wait for the earlier.
  static absl::StatusOr<ProgramWaits> Create(const v1::Program& program);

  // Whether `later` begins only when `earlier`, which comes before it, has ended.
  bool Waits(int later, int earlier) const { return in_order_ || before_[later][earlier]; }

 private:
  using Operations = std::bitset<kMaxProgramOperations>;

  absl::Status CheckShared(const v1::Program& program) const;

  bool in_order_ = true;
  std::vector<Operations> before_;  // by operation: what it waits for, directly or through others
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_PROGRAM_WAITS_H_
