// What stands behind a perigee_cluster.
#ifndef PERIGEE_CLIENT_LIB_C_CLUSTER_H_
#define PERIGEE_CLIENT_LIB_C_CLUSTER_H_

#include <memory>

#include "client/lib/client.h"

struct perigee_cluster {
  std::unique_ptr<perigee::Client> client;
};

#endif  // PERIGEE_CLIENT_LIB_C_CLUSTER_H_
