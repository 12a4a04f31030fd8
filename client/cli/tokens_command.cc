#include "client/cli/tokens_command.h"

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cli/coordinator_address.h"
#include "client/cli/flags.h"
#include "client/cli/get_names.h"
#include "client/cli/output.h"
#include "client/lib/client.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

constexpr char kIssue[] = "tokens issue";
constexpr char kLedger[] = "tokens ledger";

struct Target {
  std::string typed;
  std::string address;
  bool json = false;
};

void AddTarget(FlagSet& flags, const char* what, const char* help, Target& target) {
  flags.Positional(what, help, &target.typed);
  flags.Optional("address", "HOST:PORT",
                 absl::StrCat("coordinator to ask; without it ", kAddressVariable),
                 &target.address);
  flags.Boolean("json", "print JSON", &target.json);
}

// The whole name and the coordinator, or what is wrong with them.
absl::Status Complete(ResourceKind kind, Target& target) {
  const auto name = ParseTypedName(kind, target.typed);
  if (!name.ok()) return name.status();
  if (name->is_parent) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", target.typed.substr(0, 80), "' is a group, expected one of its ", CollectionOf(kind)));
  }
  target.typed = name->name;
  target.address = CoordinatorAddress(target.address);
  if (!target.address.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("which coordinator? Give --address or set ", kAddressVariable));
}

std::string TokensJson(const std::string& buffer, const v1::IssueTokensResponse& response) {
  JsonWriter json;
  json.BeginObject();
  json.Field("buffer", buffer);
  json.Field("generation", response.generation());
  json.Field("rank", response.rank());
  json.Field("worker", response.worker());
  json.Field("first_serial", response.first_serial());
  json.Field("life_s", static_cast<int64_t>(response.life().seconds()));
  json.Key("tokens");
  json.BeginArray();
  for (const std::string& token : response.tokens()) json.Value(absl::BytesToHexString(token));
  json.EndArray();
  json.EndObject();
  return json.ToString();
}

int Issue(const std::vector<std::string>& args) {
  Target target;
  int32_t rank = 0, count = 1;
  std::string request_id;
  FlagSet flags(kIssue, "Issues publication tokens for one rank of a buffer, each good once.");
  AddTarget(flags, "BUFFER", "such as GROUP/BUFFER, or a whole resource name", target);
  flags.Required("rank", "R", "rank that they are good at", &rank, 0);
  flags.Optional("count", "N", "how many", &count, 1, kMaxTokensOfCall);
  flags.Optional("request-id", "ID",
                 "repeating it within an hour prints the same tokens; without it they are new ones",
                 &request_id);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const absl::Status complete = Complete(ResourceKind::kBuffer, target);
  if (!complete.ok()) return flags.WrongUse(complete.message());
  const auto client = Client::Connect({.address = target.address});
  if (!client.ok()) return PrintFailure(kIssue, client.status());
  const auto response =
      (*client)->IssueTokens(target.typed, Generation(0), RankId(rank), count, request_id);
  if (!response.ok()) return PrintFailure(kIssue, response.status());
  if (target.json) return PrintResult(TokensJson(target.typed, *response));
  std::string text;
  for (const std::string& token : response->tokens()) {
    absl::StrAppend(&text, absl::BytesToHexString(token), "\n");
  }
  return PrintResult(text);
}

std::string LedgerJson(const v1::TokenLedger& ledger) {
  JsonWriter json;
  json.BeginObject();
  json.Field("name", ledger.name());
  json.Key("ranks");
  json.BeginArray();
  for (const v1::RankTokens& rank : ledger.ranks()) {
    json.BeginObject();
    json.Field("rank", rank.rank());
    json.Field("granted", rank.granted());
    json.Field("issued", rank.issued());
    json.Field("drawn", rank.drawn());
    json.Field("spent", rank.spent());
    json.Field("burnt", rank.burnt());
    json.Field("confirmed", rank.confirmed());
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return json.ToString();
}

std::string LedgerTable(const v1::TokenLedger& ledger) {
  TextTable table({"RANK", "GRANTED", "ISSUED", "DRAWN", "SPENT", "BURNT", "CONFIRMED"});
  for (const v1::RankTokens& rank : ledger.ranks()) {
    table.AddRow({absl::StrCat(rank.rank()), absl::StrCat(rank.granted()),
                  absl::StrCat(rank.issued()), absl::StrCat(rank.drawn()),
                  absl::StrCat(rank.spent()), absl::StrCat(rank.burnt()),
                  rank.confirmed() ? "yes" : "no"});
  }
  return table.ToString();
}

int Ledger(const std::vector<std::string>& args) {
  Target target;
  FlagSet flags(kLedger, "Shows what became of a generation's publication tokens, by rank.");
  AddTarget(flags, "GENERATION", "such as GROUP/7, or a whole resource name", target);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const absl::Status complete = Complete(ResourceKind::kGeneration, target);
  if (!complete.ok()) return flags.WrongUse(complete.message());
  const auto client = Client::Connect({.address = target.address});
  if (!client.ok()) return PrintFailure(kLedger, client.status());
  const auto ledger = (*client)->GetTokenLedger(target.typed);
  if (!ledger.ok()) return PrintFailure(kLedger, ledger.status());
  return PrintResult(target.json ? LedgerJson(*ledger) : LedgerTable(*ledger));
}

constexpr char kHelp[] =
    "Publication tokens: the right to publish once into one buffer of one generation, at one "
    "rank.\n"
    "\n"
    "Usage: perigee tokens issue BUFFER --rank R [FLAGS]\n"
    "       perigee tokens ledger GENERATION [FLAGS]\n"
    "\n"
    "'perigee tokens issue --help' and 'perigee tokens ledger --help' say more.\n";

int Run(const std::vector<std::string>& args) {
  const std::string what = args.empty() ? "" : args[0];
  if (what == "--help" || what == "-h") return PrintResult(kHelp);
  if (what == "issue") return Issue({args.begin() + 1, args.end()});
  if (what == "ledger") return Ledger({args.begin() + 1, args.end()});
  std::cerr << "perigee tokens: "
            << (args.empty() ? "what to do is missing" : "cannot '" + what.substr(0, 80) + "'")
            << ", expected issue or ledger\nTry 'perigee tokens --help'.\n";
  return kWrongUse;
}

}  // namespace

const Command kTokensCommand = {"tokens", "issue publication tokens, or show what became of them",
                                Run};

}  // namespace perigee
