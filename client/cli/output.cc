#include "client/cli/output.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/command.h"
#include "kernels/common/check.h"
#include "proto/support/json_string.h"

namespace perigee {
namespace {

bool StartsLikeNumber(const std::string& cell) {
  const size_t digit = !cell.empty() && (cell[0] == '-' || cell[0] == '+') ? 1 : 0;
  return cell.size() > digit && cell[digit] >= '0' && cell[digit] <= '9';
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void TextTable::AddRow(std::vector<std::string> cells) {
  PERIGEE_CHECK(cells.size() == rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  const size_t columns = rows_[0].size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> numbers(columns, rows_.size() > 1);
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (size_t column = 0; column < columns; ++column) {
      widths[column] = std::max(widths[column], rows_[row][column].size());
      if (row > 0 && !StartsLikeNumber(rows_[row][column])) numbers[column] = false;
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line;
    for (size_t column = 0; column < columns; ++column) {
      const std::string blank(widths[column] - row[column].size(), ' ');
      absl::StrAppend(&line, column == 0 ? "" : "  ", numbers[column] ? blank : "", row[column],
                      numbers[column] ? "" : blank);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

void JsonWriter::BeforeValue() {
  if (scopes_.empty()) {
    PERIGEE_CHECK(text_.empty());
    return;
  }
  PERIGEE_CHECK(scopes_.back().is_object == after_key_);
  if (after_key_) {
    after_key_ = false;
    return;
  }
  Separate();
}

// From what comes before a member or an element of the innermost scope.
void JsonWriter::Separate() {
  Scope& scope = scopes_.back();
  if (!scope.empty) text_ += ',';
  if (!scope.one_line) {
    absl::StrAppend(&text_, "\n", std::string(2 * scopes_.size(), ' '));
  } else if (!scope.empty) {
    text_ += ' ';
  }
  scope.empty = false;
}

void JsonWriter::Key(absl::string_view key) {
  PERIGEE_CHECK(!scopes_.empty() && scopes_.back().is_object && !after_key_);
  Separate();
  absl::StrAppend(&text_, JsonQuote(key), ": ");
  after_key_ = true;
}

void JsonWriter::Open(char bracket, bool is_object) {
  BeforeValue();
  text_ += bracket;
  scopes_.push_back({.is_object = is_object});
}

void JsonWriter::Close(char bracket, bool is_object) {
  PERIGEE_CHECK(!scopes_.empty() && scopes_.back().is_object == is_object && !after_key_);
  const bool own_line = !scopes_.back().empty && !scopes_.back().one_line;
  scopes_.pop_back();
  if (own_line) absl::StrAppend(&text_, "\n", std::string(2 * scopes_.size(), ' '));
  text_ += bracket;
}

void JsonWriter::BeginObject() { Open('{', true); }
void JsonWriter::EndObject() { Close('}', true); }
void JsonWriter::BeginArray() { Open('[', false); }
void JsonWriter::EndArray() { Close(']', false); }

void JsonWriter::Append(absl::string_view raw) {
  BeforeValue();
  absl::StrAppend(&text_, raw);
}

void JsonWriter::Value(absl::string_view text) { Append(JsonQuote(text)); }
void JsonWriter::Value(bool value) { Append(value ? "true" : "false"); }
void JsonWriter::Value(int64_t value) { Append(absl::StrCat(value)); }
void JsonWriter::Value(uint64_t value) { Append(absl::StrCat(value)); }
void JsonWriter::Null() { Append("null"); }

void JsonWriter::Value(double value) {
  if (!std::isfinite(value)) return Null();
  char digits[32];
  const auto result = std::to_chars(digits, digits + sizeof(digits), value);
  PERIGEE_CHECK(result.ec == std::errc());
  Append(absl::string_view(digits, static_cast<size_t>(result.ptr - digits)));
}

std::string JsonWriter::ToString() const {
  PERIGEE_CHECK(scopes_.empty() && !text_.empty());
  return absl::StrCat(text_, "\n");
}

std::string FormatBytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

std::string FormatCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t place = digits.size(); place > first + 3;) {
    place -= 3;
    digits.insert(place, 1, ',');
  }
  return digits;
}

int PrintResult(absl::string_view text) {
  std::cout << text << std::flush;
  if (std::cout) return kDone;
  std::cerr << "perigee: cannot write to stdout\n";
  return kFailed;
}

int PrintFailure(absl::string_view command, const absl::Status& status) {
  std::cerr << "perigee " << command << ": " << status.message() << "\n";
  return kFailed;
}

}  // namespace perigee
