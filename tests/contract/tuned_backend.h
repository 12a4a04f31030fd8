// A backend whose data paths are made with other options: the suite holds every one to the same.
#ifndef PERIGEE_TESTS_CONTRACT_TUNED_BACKEND_H_
#define PERIGEE_TESTS_CONTRACT_TUNED_BACKEND_H_

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace perigee {

using Tuning = std::function<void(DataPathOptions&)>;

std::unique_ptr<Backend> MakeTunedBackend(std::unique_ptr<Backend> backend, Tuning tuning);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_TUNED_BACKEND_H_
