// This machine's name.
#ifndef PERIGEE_WORKER_HOST_ID_H_
#define PERIGEE_WORKER_HOST_ID_H_

#include <string>

namespace perigee {

// The host name in the form that resource names have: {h} of hosts/{h}.
std::string HostId();

}  // namespace perigee

#endif  // PERIGEE_WORKER_HOST_ID_H_
