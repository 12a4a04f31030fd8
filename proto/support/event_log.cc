#include "proto/support/event_log.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "absl/strings/escaping.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace perigee {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::shared_ptr<spdlog::logger> MakeLogger(const std::string& program, LogLevel lowest) {
  auto logger =
      std::make_shared<spdlog::logger>(program, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%fZ %l %n[%P] %v", spdlog::pattern_time_type::utc);
  logger->set_level(ToSpdlog(lowest));
  logger->flush_on(spdlog::level::debug);
  return logger;
}

// Replaced by InitLogging before any thread starts, read by all afterwards.
std::shared_ptr<spdlog::logger>& Logger() {
  static std::shared_ptr<spdlog::logger> logger = MakeLogger("perigee", LogLevel::kWarning);
  return logger;
}

bool NeedsQuotes(absl::string_view value) {
  return value.empty() || std::any_of(value.begin(), value.end(), [](char c) {
           return c == ' ' || c == '"' || c == '=' || c == '\\' ||
                  static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

}  // namespace

void InitLogging(const std::string& program, LogLevel lowest) {
  // gRPC writes lines of its own about what its callers are told anyway.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  Logger() = MakeLogger(program, lowest);
}

std::string FormatEvent(const char* event, std::initializer_list<LogField> fields) {
  std::string line = event;
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=");
    if (NeedsQuotes(field.value)) {
      absl::StrAppend(&line, "\"", absl::Utf8SafeCEscape(field.value), "\"");
    } else {
      absl::StrAppend(&line, field.value);
    }
  }
  return line;
}

void LogEvent(LogLevel level, const char* event, std::initializer_list<LogField> fields) {
  spdlog::logger& logger = *Logger();
  const auto spdlog_level = ToSpdlog(level);
  if (logger.should_log(spdlog_level)) logger.log(spdlog_level, "{}", FormatEvent(event, fields));
}

}  // namespace perigee
