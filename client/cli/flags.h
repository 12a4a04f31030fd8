// The flags of one subcommand: declared once, parsed strictly, and the source of its --help text.
//
//   FlagSet flags("plan", "Plans where every route goes.");
//   std::string input;
//   flags.Required("input", "FILE", "safetensors file with topk_experts", &input);
//   if (absl::optional<int> status = flags.ParseOrExit(args)) return *status;
#ifndef PERIGEE_CLIENT_CLI_FLAGS_H_
#define PERIGEE_CLIENT_CLI_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace perigee {

// Variables are borrowed and must outlive the FlagSet; what they hold when a flag is added is its
// default. A flag is given as --name value or --name=value, at most once
// unless it is a list; a boolean one as --name,
// --name=true or --name=false. `--` ends the flags. Names are without the dashes; `value` is the
// word for the value in the help text ("FILE"). Not thread-safe.
class FlagSet {
 public:
  FlagSet(std::string command, std::string summary);
  FlagSet(const FlagSet&) = delete;
  FlagSet& operator=(const FlagSet&) = delete;

  void Optional(const std::string& name, const std::string& value, const std::string& help,
                std::string* variable);
  void Required(const std::string& name, const std::string& value, const std::string& help,
                std::string* variable);
  // Numbers are decimal and must lie in [minimum, maximum].
  void Optional(const std::string& name, const std::string& value, const std::string& help,
                int32_t* variable, int32_t minimum = INT32_MIN, int32_t maximum = INT32_MAX);
  void Required(const std::string& name, const std::string& value, const std::string& help,
                int32_t* variable, int32_t minimum = INT32_MIN, int32_t maximum = INT32_MAX);
  // No default: stays empty unless given.
  void Optional(const std::string& name, const std::string& value, const std::string& help,
                absl::optional<int32_t>* variable, int32_t minimum = INT32_MIN,
                int32_t maximum = INT32_MAX);
  // A decimal number in [minimum, maximum].
  void Optional(const std::string& name, const std::string& value, const std::string& help,
                absl::optional<double>* variable, double minimum, double maximum);
  // A size in bytes: a number with none of or one of the suffixes KiB MiB GiB TiB KB MB GB TB.
  void Optional(const std::string& name, const std::string& value, const std::string& help,
                absl::optional<int64_t>* bytes);
  // One of `choices`.
  void Choice(const std::string& name, const std::vector<std::string>& choices,
              const std::string& help, std::string* variable);
  void Boolean(const std::string& name, const std::string& help, bool* variable);
  // May be given more than once: the values in order. At least one.
  void RequiredList(const std::string& name, const std::string& value, const std::string& help,
                    std::vector<std::string>* variable);
  // Arguments that are no flags, taken in the order of these calls. Without any such call, one is
  // an error.
  void Positional(const std::string& value, const std::string& help, std::string* variable);
  void OptionalPositional(const std::string& value, const std::string& help, std::string* variable);
  void Repeated(const std::string& value, const std::string& help,
                std::vector<std::string>* variable);

  // Sets the variables. INVALID_ARGUMENT says in one line what is wrong and what was expected: an
  // unknown flag (with the nearest known one), one given twice, without a value or with a malformed
  // one, a required one left out, or an argument too many.
  absl::Status Parse(const std::vector<std::string>& args);

  // Whether the last Parse met the flag.
  bool given(absl::string_view name) const;

  // What a command does first. --help anywhere: the help text on stdout, kDone. Wrong use: two
  // lines on stderr, kWrongUse. Otherwise nothing, and the command goes on.
  absl::optional<int> ParseOrExit(const std::vector<std::string>& args);
  // For a check that only the command itself can make: the same two lines; returns kWrongUse.
  int WrongUse(absl::string_view message) const;

  std::string HelpText() const;

 private:
  struct Flag {
    std::string name;
    std::string value;  // empty: boolean
    std::string help;
    std::string default_text;  // empty: none
    bool required = false;
    bool given = false;
    std::function<absl::Status(const std::string&)> set;
    bool repeatable = false;
  };
  struct Argument {
    std::string value;
    std::string help;
    bool required = false;
    std::string* variable = nullptr;               // one of these two
    std::vector<std::string>* repeated = nullptr;  // takes all that are left
  };

  void Add(Flag flag);
  void AddNumber(const std::string& name, const std::string& value, const std::string& help,
                 std::string default_text, int32_t minimum, int32_t maximum,
                 std::function<void(int32_t)> set);
  Flag* FindFlag(absl::string_view name);
  absl::Status UnknownFlag(absl::string_view arg) const;
  absl::Status ParseFlag(const std::vector<std::string>& args, size_t* index);
  absl::Status TakePositional(const std::vector<std::string>& given);

  std::string command_;
  std::string summary_;
  std::vector<Flag> flags_;
  std::vector<Argument> arguments_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_FLAGS_H_
