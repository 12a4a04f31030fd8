// A backend whose operations have ended when their calls return: Synchronize after each, so that a
// test reads what became of an operation from its own status, on backends that queue too.
#ifndef PERIGEE_TESTS_CONTRACT_SETTLED_BACKEND_H_
#define PERIGEE_TESTS_CONTRACT_SETTLED_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace perigee {

// `backend` outlives the result.
std::unique_ptr<Backend> MakeSettledBackend(Backend& backend);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_SETTLED_BACKEND_H_
