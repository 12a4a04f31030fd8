#include "client/cli/choice_view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string Json(const v1::Buffer& buffer) {
  JsonWriter json;
  json.BeginObject();
  WritePathChoice(buffer, json);
  json.EndObject();
  return json.ToString();
}

TEST(ChoiceView, ABufferOfWhichNobodyHasToldHasNone) {
  EXPECT_TRUE(PathFacts(v1::Buffer()).empty());
  EXPECT_THAT(Json(v1::Buffer()), HasSubstr("\"path_choice\": null"));
}

TEST(ChoiceView, SaysPathCellAndWhy) {
  v1::Buffer buffer;
  v1::PathChoice& choice = *buffer.mutable_path_choice();
  choice.set_path("pull");
  choice.set_basis(v1::PathChoice::MEASURED);
  choice.set_cell("S64 on GPU, skew 1");
  choice.set_reason("it takes less");
  EXPECT_THAT(PathFacts(buffer), ElementsAre(Pair("path of rows", "pull (by measured costs)"),
                                             Pair("measured cell", "S64 on GPU, skew 1"),
                                             Pair("path because", "it takes less")));
  for (const char* part : {"\"path\": \"pull\"", "\"basis\": \"MEASURED\"",
                           "\"cell\": \"S64 on GPU, skew 1\"", "\"reason\": \"it takes less\""}) {
    EXPECT_THAT(Json(buffer), HasSubstr(part));
  }
  choice.set_path("ordinary");
  choice.set_basis(v1::PathChoice::DEFAULT);
  choice.clear_cell();
  EXPECT_THAT(PathFacts(buffer), ElementsAre(Pair("path of rows", "ordinary (the default)"),
                                             Pair("path because", "it takes less")));
  EXPECT_THAT(Json(buffer), HasSubstr("\"cell\": null"));
}

}  // namespace
}  // namespace perigee
