// What a local cluster is made of.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_OPTIONS_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_OPTIONS_H_

#include <cstdint>
#include <string>

namespace perigee {

// Names of workers are w0, w1, ...
struct SupervisorOptions {
  int32_t ranks = 1;
  std::string backend = "host";
  // Of backend cuda. Worker i has device i, or with shared_gpu all workers have device 0.
  bool shared_gpu = false;
  int32_t sms = 0;                      // of its device that each worker may take; 0: all
  std::string memory_handle = "auto";   // auto | fd | fabric
  int32_t threads = 1;                  // of each worker
  std::string address = "127.0.0.1:0";  // of the coordinator
  std::string dir = "";                 // where data and logs stay; empty: they do not
  bool restart = true;                  // a lost worker is started again
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_OPTIONS_H_
