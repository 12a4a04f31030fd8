// Which path the rows of `perigee run moe-layer` take: the one asked for, or the one that a table
// of measured costs speaks for.
#ifndef PERIGEE_CLIENT_CLI_RUN_LAYER_PATH_H_
#define PERIGEE_CLIENT_CLI_RUN_LAYER_PATH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "client/cli/run/layer_input.h"
#include "client/lib/client.h"
#include "client/lib/path_selector.h"
#include "client/lib/path_table.h"
#include "proto/v1/groups.pb.h"

namespace perigee {

// As asked for. The tokens come from a file, so there is no producer that could write in place: of
// the paths a table speaks for, only those of rows that are there.
struct LayerPath {
  DispatchPath path = DispatchPath::kOrdinary;
  // Chosen by it instead; none: `path`.
  absl::optional<PathTable> table = absl::nullopt;
  bool asked_for = false;  // by name; else `path` is the default
};

// Of its shape, what the file does not say.
struct LayerBuffer {
  int32_t ranks = 1;
  int32_t token_padding = 128;
  int32_t slots = 0;
};

inline constexpr char kAutoPath[] = "auto";
// What --path takes.
std::vector<std::string> LayerPathNames();
// The path of that name; of kAutoPath the table in the file, with the errors of PathTable::Read.
absl::StatusOr<LayerPath> ReadLayerPath(const std::string& name, const std::string& table_path);

// What the group's ranks run on: as `perigee bench` writes it into a table.
absl::StatusOr<PathMachine> MachineOf(Client& client, const v1::Group& group);
// For a buffer with the defaults of SMs.
PathChoice ChooseLayerPath(const LayerPath& path, const PathMachine& machine,
                           const LayerInput& input, const LayerBuffer& buffer);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_LAYER_PATH_H_
