#include "client/cli/get_command.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/coordinator_address.h"
#include "client/cli/describe_path.h"
#include "client/cli/flags.h"
#include "client/cli/get_names.h"
#include "client/cli/get_views.h"
#include "client/cli/host_view.h"
#include "client/cli/output.h"
#include "client/lib/client.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

// get: rows of what a name stands for. list: rows of a whole collection. describe: all facts.
enum class Verb { kGet, kList, kDescribe };

struct Question {
  Verb verb = Verb::kGet;
  std::string command;
  ResourceKind kind = ResourceKind::kWorker;
  ResourceName name;  // empty: all
  bool json = false;

  bool one() const { return !name.name.empty() && !name.is_parent; }
};

template <typename Item>
std::string Describe(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) {
    const Facts facts = FactsOf(item);
    size_t width = 0;
    for (const auto& [what, value] : facts) width = std::max(width, what.size());
    if (!text.empty()) text += "\n";
    for (const auto& [what, value] : facts) {
      absl::StrAppend(&text, what, ":", std::string(width - what.size() + 2, ' '), value, "\n");
    }
  }
  return text;
}

std::string Describe(const std::vector<HostView>& hosts) {
  std::string text;
  for (const HostView& host : hosts) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", DescribeHost(host));
  }
  return text;
}

template <typename Item>
std::string Json(const Question& question, const std::vector<Item>& items) {
  JsonWriter json;
  if (question.one()) {
    WriteJson(items.front(), json);
    return json.ToString();
  }
  json.BeginObject();
  json.Key(CollectionOf(question.kind));
  json.BeginArray();
  for (const Item& item : items) WriteJson(item, json);
  json.EndArray();
  json.EndObject();
  return json.ToString();
}

template <typename Item>
int Answer(const Question& question, const absl::StatusOr<std::vector<Item>>& items) {
  if (!items.ok()) return PrintFailure(question.command, items.status());
  if (question.json) return PrintResult(Json(question, *items));
  if (items->empty()) return PrintResult(absl::StrCat("no ", CollectionOf(question.kind), "\n"));
  if (question.verb == Verb::kDescribe) return PrintResult(Describe(*items));
  TextTable table(TableHeader(Item()));
  for (const Item& item : *items) table.AddRow(TableRow(item));
  return PrintResult(table.ToString());
}

template <typename Item>
absl::StatusOr<std::vector<Item>> AsList(absl::StatusOr<Item> item) {
  if (!item.ok()) return item.status();
  return std::vector<Item>{*std::move(item)};
}

absl::StatusOr<std::vector<HostView>> AskForHosts(Client& client, const std::string& name) {
  const auto workers = client.ListWorkers();
  if (!workers.ok()) return workers.status();
  return HostsOf(*workers, name);
}

int Ask(Client& client, const Question& question) {
  const std::string& name = question.name.name;
  switch (question.kind) {
    case ResourceKind::kHost:
      return Answer(question, AskForHosts(client, name));
    case ResourceKind::kWorker:
      return Answer(question,
                    question.one() ? AsList(client.GetWorker(name)) : client.ListWorkers());
    case ResourceKind::kGroup:
      return Answer(question, question.one() ? AsList(client.GetGroup(name)) : client.ListGroups());
    case ResourceKind::kBuffer:
      return Answer(question,
                    question.one() ? AsList(client.GetBuffer(name)) : client.ListBuffers(name));
    case ResourceKind::kGeneration:
      return Answer(question, question.one() ? AsList(client.GetGeneration(name))
                                             : client.ListGenerations(name));
  }
  return kFailed;
}

// Makes the question's name out of what was typed. INVALID_ARGUMENT: it asks for nothing.
absl::Status ReadName(const std::string& kind, const std::string& typed, Question& question) {
  const auto parsed_kind = ParseResourceKind(kind);
  if (!parsed_kind.ok()) return parsed_kind.status();
  question.kind = *parsed_kind;
  if (!typed.empty()) {
    const auto name = ParseTypedName(question.kind, typed);
    if (!name.ok()) return name.status();
    question.name = *name;
  }
  if (question.verb == Verb::kList && question.one()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "list takes a group at most, not one of its members: '", typed.substr(0, 80), "'"));
  }
  if (question.kind == ResourceKind::kGeneration && typed.empty()) {
    return absl::InvalidArgumentError("generations of which group? Its name is missing");
  }
  return absl::OkStatus();
}

int Run(Verb verb, const std::string& command, const std::string& summary,
        const std::vector<std::string>& args) {
  Question question;
  question.verb = verb;
  question.command = command;
  std::string kind, typed, address;
  FlagSet flags(command, summary);
  flags.Positional("KIND", "hosts, workers, groups, buffers or generations", &kind);
  flags.OptionalPositional("NAME",
                           "such as w0, GROUP, GROUP/BUFFER, GROUP/7, or a whole resource name; "
                           "a GROUP stands for all its buffers or generations",
                           &typed);
  flags.Optional("address", "HOST:PORT",
                 absl::StrCat("coordinator to ask; without it ", kAddressVariable), &address);
  flags.Boolean("json", "print JSON", &question.json);
  if (const auto status = flags.ParseOrExit(args)) return *status;
  const absl::Status read = ReadName(kind, typed, question);
  if (!read.ok()) return flags.WrongUse(read.message());
  const std::string coordinator = CoordinatorAddress(address);
  if (coordinator.empty()) {
    return flags.WrongUse(
        absl::StrCat("which coordinator? Give --address or set ", kAddressVariable));
  }
  const auto client = Client::Connect({.address = coordinator});
  if (!client.ok()) return PrintFailure(command, client.status());
  return Ask(**client, question);
}

}  // namespace

const Command kGetCommand = {
    "get", "show one or all hosts, workers, groups, buffers, generations",
    [](const std::vector<std::string>& args) {
      return Run(Verb::kGet, "get", "Shows a resource, or all of a kind, one line each.", args);
    }};
const Command kListCommand = {"list", "list hosts, workers, groups, buffers, generations",
                              [](const std::vector<std::string>& args) {
                                return Run(Verb::kList, "list",
                                           "Lists all resources of a kind, one line each.", args);
                              }};
const Command kDescribeCommand = {
    "describe", "show all that is known of hosts, workers, groups, buffers, generations",
    [](const std::vector<std::string>& args) {
      if (!args.empty() && args[0] == "path") return DescribePath({args.begin() + 1, args.end()});
      return Run(Verb::kDescribe, "describe",
                 "Shows all that is known of a resource; 'describe path' which path rows take.",
                 args);
    }};

}  // namespace perigee
