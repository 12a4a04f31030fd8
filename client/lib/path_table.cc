#include "client/lib/path_table.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace perigee {
namespace {

using google::protobuf::Value;

constexpr char kFormat[] = "perigee path table";

struct CostField {
  const char* key;
  absl::optional<double> PathCosts::*cost;
};
constexpr CostField kCosts[] = {
    {"dispatch", &PathCosts::dispatch_us},
    {"pull", &PathCosts::pull_us},
    {"produce_dispatch", &PathCosts::produce_dispatch_us},
    {"direct", &PathCosts::direct_us},
    {"direct_overlapped", &PathCosts::direct_overlapped_us},
};

// In JSON.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

std::string BufferFields(const PathShape& shape) {
  if (!shape.recorded()) return "";
  return absl::StrCat(", \"token_padding\": ", shape.token_padding, ", \"slots\": ", shape.slots,
                      ", \"ring_slots\": ", shape.ring_slots);
}

std::string CellLine(const PathCell& cell) {
  const PathMachine& machine = cell.machine;
  const PathShape& shape = cell.shape;
  std::vector<std::string> costs;
  for (const CostField& field : kCosts) {
    const absl::optional<double>& cost = cell.costs.*field.cost;
    if (cost) costs.push_back(absl::StrFormat("\"%s\": %.3f", field.key, *cost));
  }
  return absl::StrCat("{\"device\": ", Quoted(machine.device), ", \"devices\": ", machine.devices,
                      ", \"backend\": ", Quoted(machine.backend),
                      ", \"transport\": ", Quoted(machine.transport), ", \"sms\": ", machine.sms,
                      ", \"local_sms\": ", machine.local_sms, ", \"tokens\": ", shape.tokens,
                      ", \"hidden\": ", shape.hidden, ", \"topk\": ", shape.topk,
                      ", \"experts\": ", shape.experts, ", \"ranks\": ", shape.ranks,
                      BufferFields(shape), ", \"routes\": ", Quoted(cell.routes),
                      absl::StrFormat(", \"home_imbalance\": %.6g", cell.home_imbalance),
                      ", \"costs_us\": {", absl::StrJoin(costs, ", "), "}}\n");
}

// The fields of one object; the first thing that is wrong is kept.
class Fields {
 public:
  explicit Fields(const google::protobuf::Struct& object, std::string where = "")
      : object_(object), where_(std::move(where)) {}

  std::string Text(const char* key) {
    const Value* value = Find(key, "a string");
    if (value == nullptr) return "";
    if (value->kind_case() == Value::kStringValue) return value->string_value();
    Refuse(absl::StrCat(Name(key), " is no string, expected one"));
    return "";
  }
  double Number(const char* key, double least, const char* expected) {
    const Value* value = Find(key, expected);
    if (value == nullptr) return least;
    const double number =
        value->kind_case() == Value::kNumberValue ? value->number_value() : std::nan("");
    if (number >= least && std::isfinite(number)) return number;
    Refuse(absl::StrCat(Name(key), " is ",
                        std::isnan(number) ? std::string("no number") : absl::StrCat(number),
                        ", expected ", expected));
    return least;
  }
  int32_t Whole(const char* key, int32_t least) {
    const std::string expected = absl::StrCat("a whole number from ", least, " on");
    const double number = Number(key, least, expected.c_str());
    if (number == std::floor(number) && number <= INT32_MAX) return static_cast<int32_t>(number);
    Refuse(absl::StrCat(Name(key), " is ", number, ", expected ", expected));
    return least;
  }
  bool has(const char* key) {
    known_.insert(key);
    return object_.fields().count(key) > 0;
  }
  const Value* Find(const char* key, const char* expected) {
    known_.insert(key);
    const auto found = object_.fields().find(key);
    if (found != object_.fields().end()) return &found->second;
    Refuse(absl::StrCat("there is no ", Name(key), ", expected ", expected));
    return nullptr;
  }
  void Refuse(std::string why) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(std::move(why));
  }
  // Of all that was asked for; nothing else may be there.
  absl::Status Finish() {
    for (const auto& [key, value] : object_.fields()) {
      if (known_.count(key) == 0) {
        Refuse(absl::StrCat("there is an unknown ", Name(key.c_str()), ", expected ",
                            absl::StrJoin(known_, ", ")));
      }
    }
    return status_;
  }

 private:
  std::string Name(const char* key) const { return absl::StrCat("\"", where_, key, "\""); }

  const google::protobuf::Struct& object_;
  const std::string where_;
  std::set<std::string> known_;
  absl::Status status_;
};

absl::StatusOr<PathCosts> ParseCosts(const Value& value) {
  if (value.kind_case() != Value::kStructValue) {
    return absl::InvalidArgumentError("\"costs_us\" is no object, expected one");
  }
  Fields fields(value.struct_value(), "costs_us.");
  PathCosts costs;
  int measured = 0;
  for (const CostField& field : kCosts) {
    if (!fields.has(field.key)) continue;
    costs.*field.cost = fields.Number(field.key, 0, "microseconds");
    ++measured;
  }
  if (measured == 0 && value.struct_value().fields().empty()) {
    fields.Refuse("\"costs_us\" is empty, expected a measured path");
  }
  // The rest is known all the same.
  absl::Status status = fields.Finish();
  if (!status.ok()) return status;
  return costs;
}

// All three or none.
void ParseBufferFields(Fields& fields, PathShape& shape) {
  const bool padding = fields.has("token_padding");
  const bool slots = fields.has("slots");
  const bool rings = fields.has("ring_slots");
  if (!padding && !slots && !rings) return;
  shape.token_padding = fields.Whole("token_padding", 1);
  shape.slots = fields.Whole("slots", 0);
  shape.ring_slots = fields.Whole("ring_slots", 0);
}

absl::StatusOr<PathCell> ParseCell(const google::protobuf::Struct& object) {
  Fields fields(object);
  PathCell cell;
  cell.machine = {fields.Text("device"),  fields.Whole("devices", 1),
                  fields.Text("backend"), fields.Text("transport"),
                  fields.Whole("sms", 0), fields.Whole("local_sms", 0)};
  cell.shape = {fields.Whole("tokens", 1), fields.Whole("hidden", 1), fields.Whole("topk", 1),
                fields.Whole("experts", 1), fields.Whole("ranks", 1)};
  ParseBufferFields(fields, cell.shape);
  cell.routes = fields.Text("routes");
  cell.home_imbalance = fields.Number("home_imbalance", 1, "a number from 1 on");
  const Value* costs = fields.Find("costs_us", "an object");
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  const absl::StatusOr<PathCosts> parsed = ParseCosts(*costs);
  if (!parsed.ok()) return parsed.status();
  cell.costs = *parsed;
  return cell;
}

absl::Status CheckHeader(const google::protobuf::Struct& object) {
  Fields fields(object);
  const std::string format = fields.Text("format");
  const int32_t version = fields.Whole("version", 1);
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  if (format == kFormat && version <= kPathTableVersion) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("it is ", format, " of version ", version,
                                                 ", expected ", kFormat, " of version ",
                                                 kPathTableVersion, " at most"));
}

absl::Status AtLine(size_t line, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", status.message()));
}

}  // namespace

std::string Describe(const PathMachine& machine) {
  const auto sms = [](int32_t count) {
    return count == 0 ? std::string("default") : absl::StrCat(count);
  };
  return absl::StrCat(machine.devices, " x ", machine.device, " (", machine.backend, ", ",
                      machine.transport, ", SMs ", sms(machine.sms), ", local SMs ",
                      sms(machine.local_sms), ")");
}

std::string Describe(const PathShape& shape) {
  std::string text =
      absl::StrCat("S", shape.tokens, ",H", shape.hidden, ",K", shape.topk, ",E", shape.experts);
  if (shape.recorded()) {
    absl::StrAppend(&text, ",P", shape.token_padding, ",B", shape.slots);
    if (shape.ring_slots > 0) absl::StrAppend(&text, " with rings of ", shape.ring_slots);
  } else {
    absl::StrAppend(&text, " (P, B and rings not recorded)");
  }
  return absl::StrCat(text, " on ", shape.ranks, " ranks");
}

absl::StatusOr<PathTable> PathTable::Parse(absl::string_view text) {
  PathTable table;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0 && lines[i].empty()) continue;
    google::protobuf::Struct object;
    if (!google::protobuf::util::JsonStringToMessage(lines[i], &object).ok()) {
      return AtLine(i + 1, absl::InvalidArgumentError(absl::StrCat(
                               "it is no JSON object: ", lines[i].substr(0, 60), ", expected ",
                               i == 0 ? "the table's head" : "a cell", " on a line of its own")));
    }
    if (i == 0) {
      if (absl::Status status = CheckHeader(object); !status.ok()) return AtLine(1, status);
      continue;
    }
    const absl::StatusOr<PathCell> cell = ParseCell(object);
    if (!cell.ok()) return AtLine(i + 1, cell.status());
    table.Put(*cell);
  }
  return table;
}

absl::StatusOr<PathTable> PathTable::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int error = errno;
    return absl::ErrnoToStatus(error, absl::StrCat("cannot read path table ", path));
  }
  // A part of a table may look like a whole one.
  std::string text;
  std::array<char, 1 << 16> chunk;
  do {
    file.read(chunk.data(), chunk.size());
    text.append(chunk.data(), static_cast<size_t>(file.gcount()));
  } while (file.good());
  if (file.bad()) {
    const int error = errno == 0 ? EIO : errno;
    return absl::ErrnoToStatus(error, absl::StrCat("cannot read path table ", path));
  }
  absl::StatusOr<PathTable> table = Parse(text);
  if (table.ok()) return table;
  return absl::Status(table.status().code(),
                      absl::StrCat("path table ", path, ", ", table.status().message()));
}

void PathTable::Put(const PathCell& cell) {
  const auto same = std::find_if(cells_.begin(), cells_.end(),
                                 [&](const PathCell& known) { return known.SameCellAs(cell); });
  if (same == cells_.end()) {
    cells_.push_back(cell);
    return;
  }
  // Costs of other routes would be told as those of these. A table's text has six digits.
  const double difference = std::abs(same->home_imbalance - cell.home_imbalance);
  if (difference > 1e-5 * cell.home_imbalance) same->costs = PathCosts();
  same->home_imbalance = cell.home_imbalance;
  for (const CostField& field : kCosts) {
    if (cell.costs.*field.cost) same->costs.*field.cost = cell.costs.*field.cost;
  }
}

std::string PathTable::Text() const {
  std::string text =
      absl::StrCat("{\"format\": ", Quoted(kFormat), ", \"version\": ", kPathTableVersion, "}\n");
  for (const PathCell& cell : cells_) absl::StrAppend(&text, CellLine(cell));
  return text;
}

absl::Status PathTable::Write(const std::string& path) const {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".new");
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << Text() << std::flush;
  const bool written = file.good();
  file.close();
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const int error = errno;
  unlink(temporary.c_str());
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write path table ", path));
}

}  // namespace perigee
