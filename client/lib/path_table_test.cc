#include "client/lib/path_table.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

PathCell Cell(const std::string& routes = "skew 1") {
  PathCell cell;
  cell.machine = {"GPU \"X\\2\"", 4, "cuda", "nvlink", 16, 0};
  cell.shape = {8192, 3584, 8, 896, 4, 128, 224, 2};
  cell.routes = routes;
  cell.home_imbalance = 1.25;
  cell.costs.dispatch_us = 500.125;
  cell.costs.pull_us = 400;
  return cell;
}

void ExpectEqual(const PathCell& is, const PathCell& wanted) {
  EXPECT_TRUE(is.SameCellAs(wanted));
  EXPECT_EQ(is.home_imbalance, wanted.home_imbalance);
  EXPECT_EQ(is.costs, wanted.costs);
}

TEST(PathTable, IsReadAsItWasWritten) {
  PathTable table;
  table.Put(Cell());
  PathCell producer = Cell("trace t, layer 3");
  producer.machine.device = "tab\tin a name";
  producer.costs = {};
  producer.costs.produce_dispatch_us = 600;
  producer.costs.direct_us = 610;
  producer.costs.direct_overlapped_us = 420.5;
  producer.shape = producer.shape.AsNotRecorded();
  table.Put(producer);
  const auto read = PathTable::Parse(table.Text());
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->cells().size(), 2u);
  ExpectEqual(read->cells()[0], Cell());
  ExpectEqual(read->cells()[1], producer);
  EXPECT_EQ(read->Text(), table.Text());
}

TEST(PathTable, ACellKeepsWhatANewOneHasNotMeasured) {
  PathTable table;
  table.Put(Cell());
  PathCell again = Cell();
  again.home_imbalance += 1e-6;  // as it is read from a file
  again.costs = {};
  again.costs.pull_us = 390;
  again.costs.direct_us = 300;
  table.Put(again);
  table.Put(Cell("skew 5"));
  ASSERT_EQ(table.cells().size(), 2u);
  EXPECT_EQ(table.cells()[0].costs.dispatch_us, 500.125);
  EXPECT_EQ(table.cells()[0].costs.pull_us, 390);
  EXPECT_EQ(table.cells()[0].costs.direct_us, 300);
}

TEST(PathTable, CostsOfOtherRoutesDoNotStay) {
  PathTable table;
  table.Put(Cell());
  PathCell again = Cell();
  again.home_imbalance = 1.5;
  again.costs = {};
  again.costs.direct_us = 300;
  table.Put(again);
  ASSERT_EQ(table.cells().size(), 1u);
  ExpectEqual(table.cells()[0], again);
}

TEST(PathTable, AnEmptyOneIsATable) {
  const auto table = PathTable::Parse(PathTable().Text());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(table->cells().empty());
}

// By replacing a part of a good table.
TEST(PathTable, WhatIsBrokenIsNamedByLine) {
  PathTable good;
  good.Put(Cell("a"));
  good.Put(Cell("b"));
  const auto expect = [&](const std::string& part, const std::string& by, const std::string& why) {
    std::string text = good.Text();
    const size_t at = text.rfind(part);
    ASSERT_NE(at, std::string::npos) << part;
    text.replace(at, part.size(), by);
    const auto table = PathTable::Parse(text);
    ASSERT_FALSE(table.ok()) << by;
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(table.status().message()), HasSubstr(why));
  };
  expect("\"version\": 2", "\"version\": 3",
         "line 1: it is perigee path table of version 3, expected perigee path table of version 2 "
         "at most");
  expect("\"slots\": 224, ", "", "line 3: there is no \"slots\", expected a whole number from 0");
  expect("\"token_padding\": 128", "\"token_padding\": 0", "\"token_padding\" is 0, expected");
  expect("\"format\": \"perigee path table\", ", "", "line 1: there is no \"format\"");
  expect("\"hidden\": 3584", "\"hidden\": \"x\"",
         "line 3: \"hidden\" is no number, expected a whole number from 1 on");
  expect("\"hidden\": 3584", "\"hidden\": 1.5", "line 3: \"hidden\" is 1.5, expected a whole");
  expect("\"hidden\": 3584", "\"hidden\": 0", "line 3: \"hidden\" is 0, expected a whole");
  expect("\"tokens\": 8192, ", "", "line 3: there is no \"tokens\", expected a whole number");
  expect("\"tokens\"", "\"token\"", "line 3: there is no \"tokens\"");
  expect("\"sms\"", "\"more\": 1, \"sms\"", "line 3: there is an unknown \"more\", expected ");
  expect("\"routes\": \"b\"", "\"routes\": 3", "line 3: \"routes\" is no string");
  expect("\"home_imbalance\": 1.25", "\"home_imbalance\": 0.5", "expected a number from 1 on");
  expect("\"costs_us\": {", "\"costs_us\": 3, \"x\": {", "line 3: there is an unknown \"x\"");
  expect("\"pull\": 400.000", "\"push\": 400",
         "line 3: there is an unknown \"costs_us.push\", expected direct, direct_overlapped, "
         "dispatch, produce_dispatch, pull");
  expect("\"pull\": 400.000", "\"pull\": -1", "\"costs_us.pull\" is -1, expected microseconds");
  expect("\"pull\": 400.000}}", "\"pull\": 400.000}", "line 3: it is no JSON object");
  EXPECT_THAT(std::string(PathTable::Parse("").status().message()),
              HasSubstr("line 1: it is no JSON object: , expected the table's head"));
}

TEST(PathTable, ShapesAreToldApartInWords) {
  PathShape shape = Cell().shape;
  EXPECT_EQ(Describe(shape), "S8192,H3584,K8,E896,P128,B224 with rings of 2 on 4 ranks");
  shape.ring_slots = 0;
  EXPECT_EQ(Describe(shape), "S8192,H3584,K8,E896,P128,B224 on 4 ranks");
  EXPECT_EQ(Describe(shape.AsNotRecorded()),
            "S8192,H3584,K8,E896 (P, B and rings not recorded) on 4 ranks");
}

TEST(PathTable, FilesAreReplacedWhole) {
  const std::string path = absl::StrCat(testing::TempDir(), "/path_table_", getpid(), ".jsonl");
  EXPECT_EQ(PathTable::Read(path).status().code(), absl::StatusCode::kNotFound);
  PathTable table;
  table.Put(Cell());
  ASSERT_TRUE(table.Write(path).ok());
  table.Put(Cell("more"));
  ASSERT_TRUE(table.Write(path).ok());
  const auto read = PathTable::Read(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Text(), table.Text());
  std::ofstream(path) << table.Text() << "{\n";
  EXPECT_THAT(std::string(PathTable::Read(path).status().message()),
              HasSubstr(absl::StrCat("path table ", path, ", line 4: ")));
  std::remove(path.c_str());
  EXPECT_THAT(std::string(table.Write("/nowhere/at/all").message()),
              HasSubstr("cannot write path table /nowhere/at/all"));
}

}  // namespace
}  // namespace perigee
