#include "worker/session/serial_thread.h"

#include <vector>

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(SerialThreadTest, RunsEverythingInOrder) {
  std::vector<int> ran;
  {
    SerialThread thread;
    for (int i = 0; i < 100; ++i) thread.Post([&ran, i] { ran.push_back(i); });
    thread.Drain();
    EXPECT_EQ(ran.size(), 100u);
    for (int i = 100; i < 200; ++i) thread.Post([&ran, i] { ran.push_back(i); });
  }
  ASSERT_EQ(ran.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(ran[i], i);
}

TEST(SerialThreadTest, WorkMayPostWork) {
  int ran = 0;
  SerialThread thread;
  thread.Post([&] { thread.Post([&] { ++ran; }); });
  thread.Drain();
  EXPECT_EQ(ran, 1);
}

TEST(SerialThreadTest, WhatWorkHoldsIsGoneWhenItIsDrained) {
  SerialThread thread;
  std::weak_ptr<int> held;
  {
    auto owner = std::make_shared<int>(1);
    held = owner;
    thread.Post([owner] {});
  }
  thread.Drain();
  EXPECT_TRUE(held.expired());
}

}  // namespace
}  // namespace perigee
