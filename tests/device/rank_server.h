// A rank's own process in a test: it does what the test's process tells it (rank_wire.h), with a
// backend and a CUDA context of its own, as a worker has them.
#ifndef PERIGEE_TESTS_DEVICE_RANK_SERVER_H_
#define PERIGEE_TESTS_DEVICE_RANK_SERVER_H_

#include <cstdint>
#include <string>

namespace perigee {

// In a process that was forked before anything used CUDA. Connects to the test at socket_path,
// creates the backend ("host", or "cuda" on `device`), says so with a first reply, and serves
// commands until kQuit, the end of the test's process, or the limit in rank_wire.h. Leaves by
// _exit: what the test registered to run at its end is not this process's.
[[noreturn]] void ServeRank(const std::string& socket_path, const std::string& backend,
                            int32_t device);

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_RANK_SERVER_H_
