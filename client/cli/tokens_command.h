// `perigee tokens issue` and `perigee tokens ledger`: publication tokens for a rank, and what
// became of a generation's.
#ifndef PERIGEE_CLIENT_CLI_TOKENS_COMMAND_H_
#define PERIGEE_CLIENT_CLI_TOKENS_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kTokensCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_TOKENS_COMMAND_H_
