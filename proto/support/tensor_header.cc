#include "proto/support/tensor_header.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/json_reader.h"
#include "proto/support/json_string.h"

namespace perigee {
namespace {

struct DtypeEntry {
  TensorDtype dtype;
  const char* name;
  int64_t bytes;
};

constexpr DtypeEntry kDtypes[] = {
    {TensorDtype::kBool, "BOOL", 1},      {TensorDtype::kU8, "U8", 1},
    {TensorDtype::kI8, "I8", 1},          {TensorDtype::kF8E4M3, "F8_E4M3", 1},
    {TensorDtype::kF8E5M2, "F8_E5M2", 1}, {TensorDtype::kU16, "U16", 2},
    {TensorDtype::kI16, "I16", 2},        {TensorDtype::kF16, "F16", 2},
    {TensorDtype::kBF16, "BF16", 2},      {TensorDtype::kU32, "U32", 4},
    {TensorDtype::kI32, "I32", 4},        {TensorDtype::kF32, "F32", 4},
    {TensorDtype::kU64, "U64", 8},        {TensorDtype::kI64, "I64", 8},
    {TensorDtype::kF64, "F64", 8},
};

constexpr absl::string_view kMetadataKey = "__metadata__";
constexpr size_t kMaxDimensions = 32;

// Anybody's text in a message: of bounded length.
std::string Shown(absl::string_view text) { return JsonQuote(text.substr(0, 100)); }

const DtypeEntry& Entry(TensorDtype dtype) {
  // The table is in the order of the enumerators.
  return kDtypes[static_cast<size_t>(dtype)];
}

absl::Status ParseMetadata(JsonReader& reader, std::map<std::string, std::string>& metadata) {
  return reader.ReadObject([&](const std::string& key) -> absl::Status {
    absl::StatusOr<std::string> value = reader.ReadString();
    if (!value.ok()) return value.status();
    if (!metadata.emplace(key, *std::move(value)).second) {
      return reader.Error(absl::StrCat("metadata key ", Shown(key), " stands there twice"));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<int64_t>> ParseNumbers(JsonReader& reader) {
  std::vector<int64_t> numbers;
  absl::Status status = reader.ReadArray([&]() -> absl::Status {
    absl::StatusOr<int64_t> number = reader.ReadNonNegative();
    if (!number.ok()) return number.status();
    if (numbers.size() == kMaxDimensions) {
      return reader.Error(absl::StrCat("expected at most ", kMaxDimensions, " numbers"));
    }
    numbers.push_back(*number);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return numbers;
}

// What a tensor's object holds, before it is checked.
struct RawInfo {
  absl::optional<std::string> dtype;
  absl::optional<std::vector<int64_t>> shape;
  absl::optional<std::vector<int64_t>> offsets;
};

absl::StatusOr<RawInfo> ParseRawInfo(JsonReader& reader) {
  RawInfo raw;
  absl::Status status = reader.ReadObject([&](const std::string& key) -> absl::Status {
    if (key == "dtype" && !raw.dtype) {
      absl::StatusOr<std::string> dtype = reader.ReadString();
      if (!dtype.ok()) return dtype.status();
      raw.dtype = *std::move(dtype);
    } else if ((key == "shape" && !raw.shape) || (key == "data_offsets" && !raw.offsets)) {
      absl::StatusOr<std::vector<int64_t>> numbers = ParseNumbers(reader);
      if (!numbers.ok()) return numbers.status();
      (key == "shape" ? raw.shape : raw.offsets) = *std::move(numbers);
    } else {
      return reader.Error(
          absl::StrCat("key ", Shown(key), ", expected dtype, shape and data_offsets once each"));
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return raw;
}

absl::StatusOr<TensorInfo> CheckInfo(const std::string& name, RawInfo raw) {
  const std::string prefix = absl::StrCat("tensor ", Shown(name), ": ");
  if (!raw.dtype || !raw.shape || !raw.offsets) {
    return absl::InvalidArgumentError(
        absl::StrCat(prefix, "expected dtype, shape and data_offsets"));
  }
  absl::StatusOr<TensorDtype> dtype = ParseDtype(*raw.dtype);
  if (!dtype.ok())
    return absl::InvalidArgumentError(absl::StrCat(prefix, dtype.status().message()));
  if (raw.offsets->size() != 2 || (*raw.offsets)[0] > (*raw.offsets)[1]) {
    return absl::InvalidArgumentError(absl::StrCat(
        prefix, "data_offsets [", absl::StrJoin(*raw.offsets, ", "), "], expected [begin, end]"));
  }
  TensorInfo info;
  info.name = name;
  info.dtype = *dtype;
  info.shape = *std::move(raw.shape);
  info.offset_bytes = (*raw.offsets)[0];
  info.size_bytes = (*raw.offsets)[1] - (*raw.offsets)[0];
  const absl::optional<int64_t> expected = TensorBytes(info.dtype, info.shape);
  if (!expected || *expected != info.size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        prefix, "data_offsets span ", info.size_bytes, " bytes, expected ",
        expected ? absl::StrCat(*expected) : "more than 63 bits hold", " for ", info.Describe()));
  }
  return info;
}

// Sorts by offset.
absl::Status CheckContiguous(std::vector<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset_bytes, a.size_bytes, a.name) <
           std::tie(b.offset_bytes, b.size_bytes, b.name);
  });
  int64_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset_bytes != end) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Shown(tensor.name), " begins at byte ", tensor.offset_bytes, ", expected ",
          end, ": tensors must follow each other without gaps or overlaps"));
    }
    end += tensor.size_bytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view DtypeName(TensorDtype dtype) { return Entry(dtype).name; }

int64_t DtypeBytes(TensorDtype dtype) { return Entry(dtype).bytes; }

absl::StatusOr<TensorDtype> ParseDtype(absl::string_view name) {
  for (const DtypeEntry& entry : kDtypes) {
    if (entry.name == name) return entry.dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("dtype ", Shown(name), ", expected one of ",
                   absl::StrJoin(kDtypes, " ", [](std::string* out, const DtypeEntry& entry) {
                     absl::StrAppend(out, entry.name);
                   })));
}

std::string TensorInfo::Describe() const {
  return absl::StrCat(DtypeName(dtype), " [", absl::StrJoin(shape, ", "), "]");
}

absl::optional<int64_t> TensorBytes(TensorDtype dtype, absl::Span<const int64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t bytes = DtypeBytes(dtype);
  for (int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return absl::nullopt;
  }
  return bytes;
}

int64_t TensorHeader::data_bytes() const {
  return tensors.empty() ? 0 : tensors.back().offset_bytes + tensors.back().size_bytes;
}

absl::StatusOr<TensorHeader> ParseTensorHeader(absl::string_view json) {
  TensorHeader header;
  JsonReader reader(json);
  std::set<std::string> names;
  absl::Status status = reader.ReadObject([&](const std::string& name) -> absl::Status {
    if (!names.insert(name).second) {
      return reader.Error(absl::StrCat(Shown(name), " stands there twice"));
    }
    if (name == kMetadataKey) return ParseMetadata(reader, header.metadata);
    absl::StatusOr<RawInfo> raw = ParseRawInfo(reader);
    if (!raw.ok()) return raw.status();
    absl::StatusOr<TensorInfo> info = CheckInfo(name, *std::move(raw));
    if (!info.ok()) return info.status();
    header.tensors.push_back(*std::move(info));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (status = reader.ReadEnd(); !status.ok()) return status;
  if (status = CheckContiguous(header.tensors); !status.ok()) return status;
  return header;
}

std::string FormatTensorHeader(const TensorHeader& header) {
  std::vector<std::string> entries;
  if (!header.metadata.empty()) {
    entries.push_back(absl::StrCat(
        JsonQuote(kMetadataKey), ":{",
        absl::StrJoin(header.metadata, ",",
                      [](std::string* out, const std::pair<const std::string, std::string>& pair) {
                        absl::StrAppend(out, JsonQuote(pair.first), ":", JsonQuote(pair.second));
                      }),
        "}"));
  }
  for (const TensorInfo& tensor : header.tensors) {
    entries.push_back(
        absl::StrCat(JsonQuote(tensor.name), ":{\"dtype\":\"", DtypeName(tensor.dtype),
                     "\",\"shape\":[", absl::StrJoin(tensor.shape, ","), "],\"data_offsets\":[",
                     tensor.offset_bytes, ",", tensor.offset_bytes + tensor.size_bytes, "]}"));
  }
  std::string text = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace perigee
