// Which source view of a data path lives. The data path says so, its views look: all copies are
// one.
#ifndef PERIGEE_KERNELS_LIVING_SOURCE_H_
#define PERIGEE_KERNELS_LIVING_SOURCE_H_

#include <memory>

#include "kernels/common/ids.h"

namespace perigee {

// Not thread-safe: as the operations of its data path. Outlives it; sequence 0 then.
class LivingSource {
 public:
  LivingSource() : sequence_(std::make_shared<Sequence>()) {}

  // Of the PrepareSource that made it; 0: none lives.
  Sequence sequence() const { return *sequence_; }
  void Set(Sequence sequence) { *sequence_ = sequence; }

 private:
  std::shared_ptr<Sequence> sequence_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LIVING_SOURCE_H_
