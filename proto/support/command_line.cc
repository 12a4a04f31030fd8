#include "proto/support/command_line.h"

#include <algorithm>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace perigee {

absl::Status ParseFlags(absl::Span<const std::string> known,
                        absl::Span<const std::string> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!absl::StartsWith(argument, "--")) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument '", argument, "', expected --name=value"));
    }
    const size_t equals = argument.find('=');
    const std::string name =
        argument.substr(2, equals == std::string::npos ? std::string::npos : equals - 2);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown flag --", name));
    }
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat("flag --", name, " has no value"));
    }
    const std::string value =
        equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
    std::string error;
    if (!absl::FindCommandLineFlag(name)->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(absl::StrCat("flag --", name, " does not take '", value,
                                                     "'", error.empty() ? "" : ": ", error));
    }
  }
  return absl::OkStatus();
}

std::string DescribeFlags(absl::Span<const std::string> known) {
  std::string text;
  for (const std::string& name : known) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    absl::StrAppend(&text, "  --", name, "=", flag->DefaultValue(), "\n      ", flag->Help(), "\n");
  }
  return text;
}

}  // namespace perigee
