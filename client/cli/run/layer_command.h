// `perigee run moe-layer`: a mixture-of-experts layer from a file, through dispatch, prefetch,
// experts and combine of a service, compared with what the file expects.
#ifndef PERIGEE_CLIENT_CLI_RUN_LAYER_COMMAND_H_
#define PERIGEE_CLIENT_CLI_RUN_LAYER_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kRunLayerCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_LAYER_COMMAND_H_
