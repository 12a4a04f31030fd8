#include "client/cli/choice_view.h"

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

const char* BasisInWords(v1::PathChoice::Basis basis) {
  switch (basis) {
    case v1::PathChoice::DEFAULT:
      return "the default";
    case v1::PathChoice::ASKED_FOR:
      return "asked for";
    case v1::PathChoice::MEASURED:
      return "by measured costs";
    case v1::PathChoice::NOT_MEASURED:
      return "nothing was measured that holds here";
    default:
      return "";
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> PathFacts(const v1::Buffer& buffer) {
  if (!buffer.has_path_choice()) return {};
  const v1::PathChoice& choice = buffer.path_choice();
  std::vector<std::pair<std::string, std::string>> facts = {
      {"path of rows", absl::StrCat(choice.path(), " (", BasisInWords(choice.basis()), ")")}};
  if (!choice.cell().empty()) facts.push_back({"measured cell", choice.cell()});
  if (!choice.reason().empty()) facts.push_back({"path because", choice.reason()});
  return facts;
}

void WritePathChoice(const v1::Buffer& buffer, JsonWriter& json) {
  json.Key("path_choice");
  if (!buffer.has_path_choice()) return json.Null();
  const v1::PathChoice& choice = buffer.path_choice();
  json.BeginObject();
  json.Field("path", choice.path());
  json.Field("basis", v1::PathChoice::Basis_Name(choice.basis()));
  json.Key("cell");
  choice.cell().empty() ? json.Null() : json.Value(choice.cell());
  json.Field("reason", choice.reason());
  json.EndObject();
}

}  // namespace perigee
