// What stands behind a perigee_attachment.
#ifndef PERIGEE_CLIENT_LIB_C_ATTACHMENT_H_
#define PERIGEE_CLIENT_LIB_C_ATTACHMENT_H_

#include <cstdint>
#include <memory>

#include "absl/types/optional.h"
#include "client/lib/local_client.h"
#include "client/lib/perigee.h"
#include "kernels/device/event.h"

struct perigee_attachment {
  std::unique_ptr<perigee::LocalClient> client;
  int32_t intermediate = 0;
  int32_t layers = 0;
  bool gradients = false;
  absl::optional<CUstream_st*> followed;  // by the next command
  std::unique_ptr<perigee::Event> mark;   // of perigee_mark_stream, once there is one
};

#endif  // PERIGEE_CLIENT_LIB_C_ATTACHMENT_H_
