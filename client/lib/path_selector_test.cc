#include "client/lib/path_selector.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

const PathMachine kMachine = {"GPU", 4, "cuda", "nvlink", 0, 0};
const PathShape kShape = {8192, 3584, 8, 896, 4, 128, 224, 0};

PathCell Cell(double imbalance, PathCosts costs) {
  return {kMachine, kShape, std::to_string(imbalance), imbalance, costs};
}

// Everything is possible.
PathQuery Query(double imbalance = 1) { return {kMachine, kShape, imbalance, true, true, true}; }

PathTable Table(const std::vector<PathCell>& cells) {
  PathTable table;
  for (const PathCell& cell : cells) table.Put(cell);
  return table;
}

// dispatch, pull, produce_dispatch, direct, direct_overlapped.
const PathCosts kAll = {500, 400, 600, 550, 450};

void ExpectChoice(const PathTable& table, const PathQuery& query, DispatchPath path,
                  const std::string& reason) {
  const PathChoice choice = ChoosePath(table, query);
  EXPECT_STREQ(PathName(choice.path), PathName(path)) << choice.reason;
  EXPECT_THAT(choice.reason, HasSubstr(reason));
}

TEST(ChoosePath, TakesWhatSavesMost) {
  ExpectChoice(
      Table({Cell(1, kAll)}), Query(), DispatchPath::kDirectOverlapped,
      "direct_overlapped takes 450.0 us where ordinary takes 600.0 us, at home imbalance 1");
  PathCosts costs = kAll;
  costs.pull_us = 340;
  ExpectChoice(Table({Cell(1, costs)}), Query(), DispatchPath::kPull, "pull takes 340.0 us");
}

TEST(ChoosePath, LeavesOutWhatTheSidesCannotDo) {
  const PathTable table = Table({Cell(1, kAll)});
  PathQuery query = Query();
  query.prepares_beside = false;
  ExpectChoice(table, query, DispatchPath::kPull, "pull");
  query.consumer_reads_peers = false;
  ExpectChoice(table, query, DispatchPath::kDirect, "direct takes 550.0 us");
  query = Query();
  query.producer_writes_in_place = false;
  ExpectChoice(table, query, DispatchPath::kPull, "pull");
  query.consumer_reads_peers = false;
  ExpectChoice(table, query, DispatchPath::kOrdinary,
               "the producer cannot write in place, and the consumer cannot read peers");
}

TEST(ChoosePath, OtherShapesAndMachinesAreNotMeasured) {
  const PathTable table = Table({Cell(1, kAll)});
  PathQuery query = Query();
  query.shape.hidden = 7168;
  ExpectChoice(
      table, query, DispatchPath::kOrdinary,
      "nothing was measured for S8192,H7168,K8,E896,P128,B224 on 4 ranks on 4 x GPU (cuda, nvlink, "
      "SMs default, local SMs default); of the table's 1 cells 1 are of this machine");
  query = Query();
  query.machine.sms = 20;
  ExpectChoice(table, query, DispatchPath::kOrdinary, "1 cells 0 are of this machine");
  ExpectChoice(PathTable(), Query(), DispatchPath::kOrdinary, "of the table's 0 cells");
}

// Each alone makes a cell another buffer's.
TEST(ChoosePath, PaddingSlotsAndRingsArePartOfTheCell) {
  const PathTable table = Table({Cell(1, kAll)});
  for (int32_t PathShape::*field :
       {&PathShape::token_padding, &PathShape::slots, &PathShape::ring_slots}) {
    PathQuery query = Query();
    query.shape.*field += 1;
    ExpectChoice(table, query, DispatchPath::kOrdinary, "nothing was measured for S8192,H3584");
  }
}

TEST(ChoosePath, CellsThatDoNotSayTheirBufferSpeakForNone) {
  PathCell cell = Cell(1, kAll);
  cell.shape = kShape.AsNotRecorded();
  const PathTable table = Table({cell});
  ExpectChoice(table, Query(), DispatchPath::kOrdinary,
               "1 are of this machine, 1 of them of this shape without its P, B and rings");
  PathQuery query = Query();
  query.shape = cell.shape;
  ExpectChoice(table, query, DispatchPath::kOrdinary, "(P, B and rings not recorded)");
}

TEST(ChoosePath, SaysWhatDecidedAndByWhichCell) {
  const auto choose = [](const PathTable& table, const PathQuery& query) {
    return ToWire(ChoosePath(table, query));
  };
  v1::PathChoice choice = choose(Table({Cell(1, kAll)}), Query());
  EXPECT_EQ(choice.path(), "direct_overlapped");
  EXPECT_EQ(choice.basis(), v1::PathChoice::MEASURED);
  EXPECT_EQ(choice.cell(),
            "S8192,H3584,K8,E896,P128,B224 on 4 ranks on 4 x GPU (cuda, nvlink, SMs default, local "
            "SMs default), 1.000000 (home imbalance 1)");
  EXPECT_THAT(choice.reason(), HasSubstr("direct_overlapped takes 450.0 us"));

  PathCosts slow = {500, 600, 600, 700, 800};
  choice = choose(Table({Cell(1, slow), Cell(3, slow)}), Query(2));
  EXPECT_EQ(choice.path(), "ordinary");
  EXPECT_EQ(choice.basis(), v1::PathChoice::MEASURED);
  EXPECT_THAT(choice.cell(), HasSubstr("(home imbalance 1) and 3.000000 (home imbalance 3)"));

  choice = choose(Table({Cell(1, kAll)}), Query(2));
  EXPECT_EQ(choice.basis(), v1::PathChoice::NOT_MEASURED) << "too far away";
  EXPECT_EQ(choice.cell(), "");
  EXPECT_EQ(choose(PathTable(), Query()).basis(), v1::PathChoice::NOT_MEASURED);
  PathQuery nothing = Query();
  nothing.producer_writes_in_place = nothing.consumer_reads_peers = false;
  EXPECT_EQ(choose(PathTable(), nothing).basis(), v1::PathChoice::DEFAULT);
}

TEST(ToWire, WordsAreNoLongerThanTheWireTakesThem) {
  PathChoice choice;
  choice.cell = std::string(1023, 'x') + "\xc3\xa4";
  choice.reason = std::string(5000, 'y');
  const v1::PathChoice wire = ToWire(choice);
  EXPECT_EQ(wire.cell(), std::string(1023, 'x')) << "no half of a character";
  EXPECT_EQ(wire.reason(), std::string(4096, 'y'));
}

TEST(ChoosePath, WhatSavesTooLittleIsNotTaken) {
  PathCosts costs;
  costs.dispatch_us = 100;
  costs.pull_us = 99.5;
  ExpectChoice(Table({Cell(1, costs)}), Query(), DispatchPath::kOrdinary,
               "pull takes 99.5 us where ordinary takes 100.0 us");
  costs.pull_us = 98.9;
  ExpectChoice(Table({Cell(1, costs)}), Query(), DispatchPath::kPull, "");
  costs.pull_us = 120;
  ExpectChoice(Table({Cell(1, costs)}), Query(), DispatchPath::kOrdinary, "pull takes 120.0 us");
}

TEST(ChoosePath, AHalfMeasuredPathIsNotTaken) {
  PathCosts costs;
  costs.direct_us = 1;
  costs.pull_us = 1;
  ExpectChoice(Table({Cell(1, costs)}), Query(), DispatchPath::kOrdinary,
               "pull was not measured near home imbalance 1");
}

// Costs in proportion, and a path only where it is faster on both sides.
TEST(ChoosePath, BetweenCellsCostsAreReadInProportion) {
  PathCosts even;
  even.dispatch_us = 500;
  even.pull_us = 300;
  PathCosts skewed;
  skewed.dispatch_us = 400;
  skewed.pull_us = 380;
  ExpectChoice(
      Table({Cell(3, skewed), Cell(1, even)}), Query(1.5), DispatchPath::kPull,
      "pull takes 320.0 us where ordinary takes 475.0 us, between home imbalances 1 and 3");
  skewed.pull_us = 410;
  ExpectChoice(Table({Cell(1, even), Cell(3, skewed)}), Query(1.001), DispatchPath::kOrdinary,
               "pull takes");
  ExpectChoice(Table({Cell(1, even), Cell(3, skewed)}), Query(1), DispatchPath::kPull,
               "at home imbalance 1");
  ExpectChoice(Table({Cell(1, even), Cell(2, even), Cell(3, skewed)}), Query(1.999),
               DispatchPath::kPull, "between home imbalances 1 and 2");
}

TEST(ChoosePath, BeyondTheLastCellsOnlyWhatIsNearIsKnown) {
  const PathTable table = Table({Cell(1.5, kAll), Cell(2, kAll)});
  ExpectChoice(table, Query(2.09), DispatchPath::kDirectOverlapped, "at home imbalance 2");
  ExpectChoice(table, Query(2.11), DispatchPath::kOrdinary,
               "not measured near home imbalance 2.11");
  ExpectChoice(table, Query(1.43), DispatchPath::kDirectOverlapped, "at home imbalance 1.5");
  ExpectChoice(table, Query(1.42), DispatchPath::kOrdinary,
               "not measured near home imbalance 1.42");
}

TEST(HomeImbalanceOf, IsTheMostLoadedRankOverTheMean) {
  EXPECT_DOUBLE_EQ(HomeImbalanceOf({0, 1, 2, 3}, 4, 2), 1);
  EXPECT_DOUBLE_EQ(HomeImbalanceOf({0, 1, 0, 3, -1, -1}, 4, 2), 1.5);
  EXPECT_DOUBLE_EQ(HomeImbalanceOf({3, 3, 3, -1}, 4, 4), 4);
  EXPECT_DOUBLE_EQ(HomeImbalanceOf({-1, -1}, 4, 2), 1);
  EXPECT_DOUBLE_EQ(HomeImbalanceOf({}, 4, 2), 1);
}

}  // namespace
}  // namespace perigee
