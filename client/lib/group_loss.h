// What a lost rank means for the ranks of a group.
#ifndef PERIGEE_CLIENT_LIB_GROUP_LOSS_H_
#define PERIGEE_CLIENT_LIB_GROUP_LOSS_H_

#include "proto/v1/error.pb.h"
#include "proto/v1/groups.pb.h"

namespace perigee {

// What every rank of a FENCED group has to say where no call was running that could bring their own
// words.
v1::GroupError LossOf(const v1::Group& group);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_GROUP_LOSS_H_
