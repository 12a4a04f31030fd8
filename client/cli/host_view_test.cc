#include "client/cli/host_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Worker OnHost(const std::string& name, const std::string& host = "hosts/a") {
  v1::Worker worker;
  worker.set_name("workers/" + name);
  worker.set_host(host);
  worker.set_backend("host");
  worker.set_state(v1::Worker::READY);
  return worker;
}

v1::Worker WithGpu(const std::string& name, const std::string& uuid) {
  v1::Worker worker = OnHost(name);
  worker.set_backend("cuda");
  v1::Gpu& gpu = *worker.mutable_gpu();
  gpu.set_uuid(uuid);
  gpu.set_name("GPU of a test");
  gpu.set_pci("0000:19:00.0");
  gpu.set_driver("580.1");
  gpu.set_nvlinks(18);
  gpu.set_nvlink_megabytes_per_second(26562);
  return worker;
}

google::protobuf::Struct Parse(const HostView& host) {
  JsonWriter json;
  WriteJson(host, json);
  google::protobuf::Struct parsed;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(json.ToString(), &parsed).ok());
  return parsed;
}

TEST(HostViewTest, GathersWorkersByHost) {
  v1::Worker lost = OnHost("w3", "hosts/c");
  lost.set_state(v1::Worker::LOST);
  const std::vector<v1::Worker> workers = {OnHost("w0", "hosts/b"), OnHost("w1"),
                                           OnHost("w2", "hosts/b"), lost};
  const auto all = HostsOf(workers, "");
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].name, "hosts/a");
  EXPECT_EQ((*all)[1].workers.size(), 2u);
  EXPECT_EQ(HostsOf(workers, "hosts/b")->front().workers[1].name(), "workers/w2");
  const auto none = HostsOf(workers, "hosts/c").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr("workers are on: hosts/a, hosts/b"));
}

TEST(HostViewTest, ShowsLinksAndWhoReachesWhom) {
  HostView host{"hosts/a",
                {WithGpu("w0", "GPU-a"), WithGpu("w1", "GPU-b"), WithGpu("w2", "GPU-b"),
                 WithGpu("w3", "GPU-d"), OnHost("w4")}};
  host.workers[0].mutable_gpu()->add_peers("GPU-b");
  host.workers[0].mutable_gpu()->add_unreachable("GPU-d");
  host.workers[0].mutable_gpu()->set_mps(true);
  const std::string text = DescribeHost(host);
  const auto line = [&](const std::string& worker) {
    const size_t begin = text.find("\n" + worker) + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_THAT(text, HasSubstr("REACHES w0"));
  EXPECT_THAT(text, Not(HasSubstr("REACHES w4")));
  EXPECT_THAT(line("w0"), AllOf(HasSubstr("18 of 26.6 GB/s"), HasSubstr("580.1"), HasSubstr("on"),
                                HasSubstr("yes"), HasSubstr("no")));
  EXPECT_THAT(line("w1"), AllOf(HasSubstr("same GPU"), HasSubstr("unknown"), HasSubstr("off")));
  EXPECT_THAT(text, HasSubstr("no GPU is known of: w4 (backend host)\n"));
  EXPECT_EQ(TableRow(host)[2], "3");
}

TEST(HostViewTest, SaysThatThereIsNoGpu) {
  EXPECT_EQ(DescribeHost({"hosts/a", {OnHost("w0"), OnHost("w1")}}),
            "hosts/a\nno GPU is known of: w0 (backend host), w1 (backend host)\n");
}

TEST(HostViewTest, JsonHasTheDocumentedKeys) {
  HostView host{"hosts/a", {WithGpu("w0", "GPU-a"), OnHost("w1")}};
  host.workers[0].mutable_gpu()->add_peers("GPU-b");
  const auto json = Parse(host);
  EXPECT_EQ(json.fields().at("name").string_value(), "hosts/a");
  const auto& workers = json.fields().at("workers").list_value();
  const auto& first = workers.values(0).struct_value().fields();
  for (const char* key : {"worker", "backend", "gpu"}) EXPECT_EQ(first.count(key), 1u) << key;
  const auto& gpu = first.at("gpu").struct_value().fields();
  for (const char* key : {"uuid", "name", "pci", "driver", "mps", "nvlinks",
                          "nvlink_gigabytes_per_second", "peers", "unreachable"}) {
    EXPECT_EQ(gpu.count(key), 1u) << key;
  }
  EXPECT_EQ(gpu.at("peers").list_value().values(0).string_value(), "GPU-b");
  EXPECT_TRUE(workers.values(1).struct_value().fields().at("gpu").has_null_value());
}

}  // namespace
}  // namespace perigee
