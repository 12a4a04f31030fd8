// How commands print results: aligned text tables, JSON with keys in the order written, numbers for
// people.
#ifndef PERIGEE_CLIENT_CLI_OUTPUT_H_
#define PERIGEE_CLIENT_CLI_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace perigee {

// Columns as wide as their widest cell. A column is flush right when all its cells below the header
// start like a number.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  // As many cells as the header has.
  void AddRow(std::vector<std::string> cells);
  // Every line ends with a newline; no trailing blanks.
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Builds one JSON value, two spaces an indent; ArrayField puts its array on one line. Calls must
// nest properly (checked):
//   json.BeginObject(); json.Field("ranks", 8); json.Key("load"); json.BeginArray(); ...
class JsonWriter {
 public:
  void BeginObject();
  void EndObject();
  void BeginArray();
  void EndArray();
  void Key(absl::string_view key);

  void Value(absl::string_view text);
  void Value(const std::string& text) { Value(absl::string_view(text)); }
  void Value(const char* text) { Value(absl::string_view(text)); }
  void Value(bool value);
  void Value(int64_t value);
  void Value(uint64_t value);
  void Value(int32_t value) { Value(static_cast<int64_t>(value)); }
  void Value(uint32_t value) { Value(static_cast<uint64_t>(value)); }
  // Shortest form that reads back as the same number; NaN and infinities are written as null.
  void Value(double value);
  void Null();

  template <typename T>
  void Field(absl::string_view key, const T& value) {
    Key(key);
    Value(value);
  }
  template <typename T>
  void ArrayField(absl::string_view key, const std::vector<T>& values) {
    Key(key);
    BeginArray();
    scopes_.back().one_line = true;
    for (const T& value : values) Value(value);
    EndArray();
  }

  // The finished value with a final newline.
  std::string ToString() const;

 private:
  struct Scope {
    bool is_object = false;
    bool empty = true;
    bool one_line = false;
  };
  void BeforeValue();
  void Separate();
  void Open(char bracket, bool is_object);
  void Close(char bracket, bool is_object);
  void Append(absl::string_view raw);

  std::string text_;
  std::vector<Scope> scopes_;
  bool after_key_ = false;
};

// "1.50 GiB", "312 B".
std::string FormatBytes(int64_t bytes);
// 1234567 as "1,234,567".
std::string FormatCount(int64_t count);

// Writes to stdout and flushes. Returns kDone, or kFailed with a line on stderr where stdout cannot
// take it (a full disk).
int PrintResult(absl::string_view text);
// "perigee COMMAND: MESSAGE" on stderr; returns kFailed.
int PrintFailure(absl::string_view command, const absl::Status& status);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_OUTPUT_H_
