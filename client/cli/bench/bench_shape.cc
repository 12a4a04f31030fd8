#include "client/cli/bench/bench_shape.h"

#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/plan/validate.h"

namespace perigee {
namespace {

constexpr const char* kFormat = "expected S4096,H7168,K8,E256[,P128][,B32][,I1024]";
constexpr int32_t kLineElements = 8;  // a row is copied 16 bytes at a time
constexpr int32_t kMaxWidth = 1 << 20;

struct Field {
  char letter;
  const char* meaning;
  int32_t minimum;
  bool required;
};
constexpr Field kFields[] = {
    {'S', "tokens of a rank", 1, true},         {'H', "elements of a row", 1, true},
    {'K', "routes of a token", 1, true},        {'E', "experts", 1, true},
    {'P', "token padding", 1, false},           {'B', "slots of a rank", 0, false},
    {'I', "inner size of an expert", 0, false},
};
constexpr size_t kFieldCount = sizeof(kFields) / sizeof(kFields[0]);

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, "; ", kFormat));
}

// Index in kFields; kFieldCount: none.
size_t FindField(char letter) {
  size_t index = 0;
  while (index < kFieldCount && kFields[index].letter != absl::ascii_toupper(letter)) ++index;
  return index;
}

absl::Status TakeField(absl::string_view part, std::vector<absl::optional<int32_t>>& values) {
  const size_t index = part.empty() ? kFieldCount : FindField(part[0]);
  if (index == kFieldCount)
    return Malformed(absl::StrCat("'", part.substr(0, 40), "' is no field"));
  const Field& field = kFields[index];
  const std::string name = absl::StrCat(std::string(1, field.letter), " (", field.meaning, ")");
  if (values[index]) return Malformed(absl::StrCat(name, " is given twice"));
  int32_t value = 0;
  if (!absl::SimpleAtoi(part.substr(1), &value) || value < field.minimum) {
    return Malformed(absl::StrCat(name, " is '", part.substr(1, 40), "', which is no number of ",
                                  field.minimum, " or more"));
  }
  values[index] = value;
  return absl::OkStatus();
}

absl::Status CheckWidth(absl::string_view name, int32_t width) {
  if (width % kLineElements == 0 && width <= kMaxWidth) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", width, ", expected a multiple of ",
                                                 kLineElements, " up to ", kMaxWidth));
}

}  // namespace

absl::StatusOr<BenchShape> ParseBenchShape(absl::string_view text) {
  std::vector<absl::optional<int32_t>> values(kFieldCount);
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (absl::Status status = TakeField(part, values); !status.ok()) return status;
  }
  for (size_t i = 0; i < kFieldCount; ++i) {
    if (kFields[i].required && !values[i]) {
      return Malformed(absl::StrCat(std::string(1, kFields[i].letter), " (", kFields[i].meaning,
                                    ") is missing"));
    }
  }
  BenchShape shape;
  shape.tokens = *values[0];
  shape.hidden = *values[1];
  shape.topk = *values[2];
  shape.experts = *values[3];
  shape.token_padding = values[4].value_or(shape.token_padding);
  shape.slots = values[5];
  shape.intermediate = values[6].value_or(shape.intermediate);
  return shape;
}

absl::Status CheckBenchShape(const BenchShape& shape, int32_t ranks) {
  absl::Status status = ValidateGeometry(GeometryOf(shape, ranks));
  if (status.ok() && shape.topk > shape.experts) {
    status = absl::InvalidArgumentError(absl::StrCat("K is ", shape.topk, " and E ", shape.experts,
                                                     ", expected distinct experts for a token"));
  }
  if (status.ok()) status = CheckWidth("H", shape.hidden);
  if (status.ok()) status = CheckWidth("I", shape.intermediate);
  return status;
}

Geometry GeometryOf(const BenchShape& shape, int32_t ranks) {
  return Geometry{.ranks = ranks,
                  .experts = shape.experts,
                  .tokens = shape.tokens,
                  .topk = shape.topk,
                  .slots = shape.slots_of(ranks),
                  .token_padding = shape.token_padding};
}

std::string FormatBenchShape(const BenchShape& shape) {
  std::string text = absl::StrCat("S", shape.tokens, ",H", shape.hidden, ",K", shape.topk, ",E",
                                  shape.experts, ",P", shape.token_padding);
  if (shape.slots) absl::StrAppend(&text, ",B", *shape.slots);
  if (shape.intermediate > 0) absl::StrAppend(&text, ",I", shape.intermediate);
  return text;
}

}  // namespace perigee
