// Structured logs: one line per event on standard error, a time, a level, the event's name and
// key=value fields, the ids among them. Thread-safe.
#ifndef PERIGEE_PROTO_SUPPORT_EVENT_LOG_H_
#define PERIGEE_PROTO_SUPPORT_EVENT_LOG_H_

#include <initializer_list>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/common/ids.h"

namespace perigee {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// A key and a value; values with spaces, quotes or control characters are quoted when written.
struct LogField {
  LogField(absl::string_view k, absl::string_view v) : key(k), value(v) {}
  LogField(absl::string_view k, const char* v) : key(k), value(v) {}
  LogField(absl::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(absl::string_view k, const absl::Status& v) : key(k), value(v.ToString()) {}
  LogField(absl::string_view k, RankId v) : key(k), value(absl::StrCat(v.value)) {}
  LogField(absl::string_view k, Generation v) : key(k), value(absl::StrCat(v.value)) {}
  LogField(absl::string_view k, Sequence v) : key(k), value(absl::StrCat(v.value)) {}
  LogField(absl::string_view k, BufferId v) : key(k), value(absl::StrCat(v.value)) {}
  template <typename Number>
  requires std::is_arithmetic_v<Number> LogField(absl::string_view k, Number v)
      : key(k), value(absl::StrCat(v)) {}

  std::string key;
  std::string value;
};

// `program` stands in every line. Call once, first in main; without it nothing below a warning is
// written, which is what tests want.
void InitLogging(const std::string& program, LogLevel lowest);

void LogEvent(LogLevel level, const char* event, std::initializer_list<LogField> fields);

// The line's part after time, level and program.
std::string FormatEvent(const char* event, std::initializer_list<LogField> fields);

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_EVENT_LOG_H_
