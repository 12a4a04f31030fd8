// Whether processes on this machine reach each other over TCP.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_NETWORK_FACTS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_NETWORK_FACTS_H_

#include <string>

#include "absl/status/status.h"

namespace perigee {

// INVALID_ARGUMENT, saying what it is instead, unless it has this form; host names are not looked
// up.
absl::Status CheckHostPort(const std::string& address);

struct NetworkFacts {
  absl::Status loopback;  // of binding any free port of 127.0.0.1 and a connection to it
  std::string address;    // HOST:PORT where the coordinator shall listen
  // Of listening there. INVALID_ARGUMENT: it is no such address; ALREADY_EXISTS: it is in use;
  // PERMISSION_DENIED; else FAILED_PRECONDITION.
  absl::Status listening;
  std::string named;     // what PERIGEE_ADDRESS says; empty: nothing
  absl::Status reached;  // of a connection to that
};

// Takes a second where a connection is not answered.
NetworkFacts GatherNetworkFacts(const std::string& address);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_NETWORK_FACTS_H_
