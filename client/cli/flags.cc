#include "client/cli/flags.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/command.h"
#include "client/cli/nearest_name.h"

namespace perigee {
namespace {

constexpr char kEndOfFlags[] = "--";

bool LooksLikeFlag(absl::string_view arg) { return arg.size() > 1 && arg[0] == '-'; }

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  constexpr std::pair<absl::string_view, double> kSuffixes[] = {
      {"KiB", 1024.0},
      {"MiB", 1024.0 * 1024},
      {"GiB", 1024.0 * 1024 * 1024},
      {"TiB", 1024.0 * 1024 * 1024 * 1024},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12}};
  constexpr double kLargest = 9e18;  // fits 63 bits
  double scale = 1;
  for (const auto& [suffix, bytes] : kSuffixes) {
    if (!absl::ConsumeSuffix(&text, suffix)) continue;
    scale = bytes;
    break;
  }
  double number = 0;
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.") == text.npos;
  if (!plain || !absl::SimpleAtod(text, &number) || number * scale > kLargest) {
    return absl::InvalidArgumentError("expected a size such as 80GiB");
  }
  return static_cast<int64_t>(number * scale);
}

}  // namespace

FlagSet::FlagSet(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)) {}

void FlagSet::Add(Flag flag) { flags_.push_back(std::move(flag)); }

void FlagSet::Optional(const std::string& name, const std::string& value, const std::string& help,
                       std::string* variable) {
  Add({name, value, help, *variable, false, false, [variable](const std::string& text) {
         *variable = text;
         return absl::OkStatus();
       }});
}

void FlagSet::Required(const std::string& name, const std::string& value, const std::string& help,
                       std::string* variable) {
  Optional(name, value, help, variable);
  flags_.back().required = true;
}

void FlagSet::AddNumber(const std::string& name, const std::string& value, const std::string& help,
                        std::string default_text, int32_t minimum, int32_t maximum,
                        std::function<void(int32_t)> set) {
  Add({name, value, help, std::move(default_text), false, false,
       [minimum, maximum, set = std::move(set)](const std::string& text) -> absl::Status {
         int32_t number = 0;
         if (!absl::SimpleAtoi(text, &number) || number < minimum || number > maximum) {
           return absl::InvalidArgumentError(
               maximum == INT32_MAX
                   ? absl::StrCat("expected a number, ", minimum, " or more")
                   : absl::StrCat("expected a number from ", minimum, " to ", maximum));
         }
         set(number);
         return absl::OkStatus();
       }});
}

void FlagSet::Optional(const std::string& name, const std::string& value, const std::string& help,
                       int32_t* variable, int32_t minimum, int32_t maximum) {
  AddNumber(name, value, help, absl::StrCat(*variable), minimum, maximum,
            [variable](int32_t number) { *variable = number; });
}

void FlagSet::Required(const std::string& name, const std::string& value, const std::string& help,
                       int32_t* variable, int32_t minimum, int32_t maximum) {
  Optional(name, value, help, variable, minimum, maximum);
  flags_.back().required = true;
}

void FlagSet::Optional(const std::string& name, const std::string& value, const std::string& help,
                       absl::optional<int32_t>* variable, int32_t minimum, int32_t maximum) {
  AddNumber(name, value, help, "", minimum, maximum,
            [variable](int32_t number) { *variable = number; });
}

void FlagSet::Optional(const std::string& name, const std::string& value, const std::string& help,
                       absl::optional<int64_t>* bytes) {
  Add({name, value, help, "", false, false, [bytes](const std::string& text) {
         const absl::StatusOr<int64_t> parsed = ParseBytes(text);
         if (parsed.ok()) *bytes = *parsed;
         return parsed.status();
       }});
}

void FlagSet::Optional(const std::string& name, const std::string& value, const std::string& help,
                       absl::optional<double>* variable, double minimum, double maximum) {
  Add({name, value, help, "", false, false, [=](const std::string& text) {
         double number = 0;
         // Also not a number, which is in no range.
         if (!absl::SimpleAtod(text, &number) || !(number >= minimum && number <= maximum)) {
           return absl::InvalidArgumentError(
               absl::StrCat("expected a number from ", minimum, " to ", maximum));
         }
         *variable = number;
         return absl::OkStatus();
       }});
}

void FlagSet::Choice(const std::string& name, const std::vector<std::string>& choices,
                     const std::string& help, std::string* variable) {
  const std::string value = absl::StrJoin(choices, "|");
  Add({name, value, help, *variable, false, false,
       [choices, value, variable](const std::string& text) {
         if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
           return absl::InvalidArgumentError(absl::StrCat("expected ", value));
         }
         *variable = text;
         return absl::OkStatus();
       }});
}

void FlagSet::Boolean(const std::string& name, const std::string& help, bool* variable) {
  Add({name, "", help, "", false, false, [variable](const std::string& text) {
         if (text != "true" && text != "false") {
           return absl::InvalidArgumentError("expected true or false");
         }
         *variable = text == "true";
         return absl::OkStatus();
       }});
}

void FlagSet::RequiredList(const std::string& name, const std::string& value,
                           const std::string& help, std::vector<std::string>* variable) {
  Add({name, value, help, "", true, false,
       [variable](const std::string& text) {
         variable->push_back(text);
         return absl::OkStatus();
       },
       true});
}

void FlagSet::Positional(const std::string& value, const std::string& help, std::string* variable) {
  arguments_.push_back({value, help, true, variable, nullptr});
}

void FlagSet::OptionalPositional(const std::string& value, const std::string& help,
                                 std::string* variable) {
  arguments_.push_back({value, help, false, variable, nullptr});
}

void FlagSet::Repeated(const std::string& value, const std::string& help,
                       std::vector<std::string>* variable) {
  arguments_.push_back({value, help, false, nullptr, variable});
}

FlagSet::Flag* FlagSet::FindFlag(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

bool FlagSet::given(absl::string_view name) const {
  return std::any_of(flags_.begin(), flags_.end(),
                     [&](const Flag& flag) { return flag.name == name && flag.given; });
}

absl::Status FlagSet::UnknownFlag(absl::string_view arg) const {
  std::vector<std::string> names = {"help"};
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const absl::string_view name = arg.substr(std::min(arg.find_first_not_of('-'), arg.size()));
  const std::string nearest = NearestName(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag ", arg.substr(0, 80),
                   nearest.empty() ? "" : absl::StrCat(", did you mean --", nearest, "?")));
}

// args[*index] is a flag; leaves *index at the last argument that belongs to it.
absl::Status FlagSet::ParseFlag(const std::vector<std::string>& args, size_t* index) {
  const std::string& arg = args[*index];
  const size_t equals = arg.find('=');
  const std::string shown = arg.substr(0, equals);
  Flag* flag = shown.rfind("--", 0) == 0 ? FindFlag(shown.substr(2)) : nullptr;
  if (flag == nullptr) return UnknownFlag(shown);
  if (flag->given && !flag->repeatable)
    return absl::InvalidArgumentError(absl::StrCat(shown, " is given twice"));
  flag->given = true;
  std::string text;
  if (equals != std::string::npos) {
    text = arg.substr(equals + 1);
  } else if (flag->value.empty()) {
    text = "true";
  } else if (*index + 1 < args.size() && args[*index + 1].rfind("--", 0) != 0) {
    text = args[++*index];
  } else {
    return absl::InvalidArgumentError(absl::StrCat(shown, " needs a value: ", flag->value));
  }
  if (absl::Status status = flag->set(text); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(shown, " is '", text.substr(0, 80), "', ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status FlagSet::TakePositional(const std::vector<std::string>& given) {
  size_t next = 0;
  for (const Argument& argument : arguments_) {
    if (argument.repeated != nullptr) {
      argument.repeated->assign(given.begin() + next, given.end());
      next = given.size();
    } else if (next < given.size()) {
      *argument.variable = given[next++];
    } else if (argument.required) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", argument.value, " is missing"));
    }
  }
  if (next == given.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unexpected argument '", given[next].substr(0, 80), "'"));
}

absl::Status FlagSet::Parse(const std::vector<std::string>& args) {
  for (Flag& flag : flags_) flag.given = false;
  std::vector<std::string> positional;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == kEndOfFlags) {
      positional.insert(positional.end(), args.begin() + i + 1, args.end());
      break;
    }
    if (!LooksLikeFlag(args[i])) {
      positional.push_back(args[i]);
    } else if (absl::Status status = ParseFlag(args, &i); !status.ok()) {
      return status;
    }
  }
  for (const Flag& flag : flags_) {
    if (flag.required && !flag.given) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag.name, " is missing"));
    }
  }
  return TakePositional(positional);
}

absl::optional<int> FlagSet::ParseOrExit(const std::vector<std::string>& args) {
  const auto end = std::find(args.begin(), args.end(), kEndOfFlags);
  if (std::find(args.begin(), end, "--help") != end || std::find(args.begin(), end, "-h") != end) {
    std::cout << HelpText() << std::flush;
    return kDone;
  }
  const absl::Status status = Parse(args);
  if (!status.ok()) return WrongUse(status.message());
  return absl::nullopt;
}

int FlagSet::WrongUse(absl::string_view message) const {
  std::cerr << "perigee " << command_ << ": " << message << "\n"
            << "Try 'perigee " << command_ << " --help'.\n";
  return kWrongUse;
}

std::string FlagSet::HelpText() const {
  std::string usage = absl::StrCat("Usage: perigee ", command_);
  std::vector<std::pair<std::string, std::string>> lines;  // what, help
  for (const Argument& argument : arguments_) {
    const std::string what =
        absl::StrCat(argument.value, argument.repeated != nullptr ? "..." : "");
    absl::StrAppend(&usage, " ", argument.required ? what : absl::StrCat("[", what, "]"));
    lines.push_back({what, argument.help});
  }
  for (const Flag& flag : flags_) {
    const std::string what =
        absl::StrCat("--", flag.name, flag.value.empty() ? "" : " ", flag.value);
    if (flag.required) absl::StrAppend(&usage, " ", what);
    lines.push_back({what, absl::StrCat(flag.help, flag.required ? " (required)" : "",
                                        flag.required || flag.default_text.empty()
                                            ? ""
                                            : absl::StrCat(" (default ", flag.default_text, ")"))});
  }
  lines.push_back({"--help", "print this text"});
  size_t width = 0;
  for (const auto& line : lines) width = std::max(width, line.first.size());
  std::string text = absl::StrCat(summary_, "\n\n", usage, " [FLAGS]\n\n");
  for (const auto& [what, help] : lines) {
    absl::StrAppend(&text, "  ", what, std::string(width - what.size() + 2, ' '), help, "\n");
  }
  return text;
}

}  // namespace perigee
