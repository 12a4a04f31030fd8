// Which backend each rank of a group has: ranks of one process share one, or have one for each
// device in turn.
#ifndef PERIGEE_TESTS_CONTRACT_RANK_BACKENDS_H_
#define PERIGEE_TESTS_CONTRACT_RANK_BACKENDS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace perigee {

// A value; the backends are borrowed.
class RankBackends {
 public:
  // All ranks have this one. NOLINTNEXTLINE(google-explicit-constructor)
  RankBackends(Backend& all) : in_turn_({&all}) {}
  // Rank r has the one at r % size; at least one.
  RankBackends(std::vector<Backend*> in_turn, Transport transport)
      : in_turn_(std::move(in_turn)), transport_(transport) {}

  Backend& of(int32_t rank) const { return *in_turn_[rank % in_turn_.size()]; }
  Transport transport() const { return transport_; }

 private:
  std::vector<Backend*> in_turn_;
  Transport transport_ = Transport::kNvlink;
};

// A mapping by `backend` of what another rank has allocated, by descriptor, as between processes. A
// failure is told and ends the process: a test without its memory can do nothing.
std::unique_ptr<Memory> MapFor(Backend& backend, const Memory& memory, PeerAccess access);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_RANK_BACKENDS_H_
