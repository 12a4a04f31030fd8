// `perigee describe path`: which path a selector takes by a table of measured costs, and why.
#ifndef PERIGEE_CLIENT_CLI_DESCRIBE_PATH_H_
#define PERIGEE_CLIENT_CLI_DESCRIBE_PATH_H_

#include <string>
#include <vector>

namespace perigee {

// args: what stands behind "describe path". Asks no coordinator. Returns the exit status.
int DescribePath(const std::vector<std::string>& args);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DESCRIBE_PATH_H_
