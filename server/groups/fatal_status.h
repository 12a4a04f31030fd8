// Which answers of a rank show that its generation cannot go on. Pure.
#ifndef PERIGEE_SERVER_GROUPS_FATAL_STATUS_H_
#define PERIGEE_SERVER_GROUPS_FATAL_STATUS_H_

#include "proto/v1/error.pb.h"

namespace perigee {

// Whether the answer to a command that ran operations shows that the ranks of this generation are
// not in step any more. The other failures leave every rank at the same sequence.
bool EndsGeneration(const v1::RankStatus& status);

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_FATAL_STATUS_H_
