#include "proto/support/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

// A directory of its own for each test.
class TensorFileTest : public ::testing::Test {
 protected:
  TensorFileTest()
      : directory_(::testing::TempDir() + "/" +
                   ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~TensorFileTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string WriteBytes(const std::string& bytes) const {
    std::ofstream(Path("raw"), std::ios::binary) << bytes;
    return Path("raw");
  }
  // A file of two tensors, as bytes.
  std::string GoodFile() const {
    const std::vector<int32_t> ids = {1, -1, 70000};
    const std::vector<float> weights = {0.5f, 1.5f};
    const absl::Status status =
        WriteTensorFile(Path("good"),
                        {{"ids", TensorDtype::kI32, {3}, BytesOf(ids)},
                         {"weights", TensorDtype::kF32, {1, 2}, BytesOf(weights)},
                         {"empty", TensorDtype::kU64, {0, 5}, {}}},
                        {{"layout", "rows"}});
    EXPECT_TRUE(status.ok()) << status;
    std::ifstream file(Path("good"), std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  void ExpectRefused(const std::string& bytes, const std::string& what) const {
    const auto file = TensorFile::Open(WriteBytes(bytes));
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(Path("raw") + ": " + what));
  }

 private:
  std::string directory_;
};

std::string WithLength(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

TEST_F(TensorFileTest, ReadsWhatWasWritten) {
  GoodFile();
  auto opened = TensorFile::Open(Path("good"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const TensorFile file = *std::move(opened);
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at("layout"), "rows");
  ASSERT_NE(file.Find("ids"), nullptr);
  EXPECT_THAT(*file.ReadInt32(*file.Find("ids")), ElementsAre(1, -1, 70000));
  const TensorInfo* weights = *file.Get("weights");
  EXPECT_EQ(weights->Describe(), "F32 [1, 2]");
  float second;
  std::memcpy(&second, file.data(*weights).data() + 4, 4);
  EXPECT_EQ(second, 1.5f);
  EXPECT_TRUE(file.data(*file.Find("empty")).empty());
  EXPECT_EQ(file.Find("none"), nullptr);
  EXPECT_THAT(std::string(file.Get("none").status().message()),
              HasSubstr("no tensor \"none\"; it has ids, weights, empty"));
}

TEST_F(TensorFileTest, ReadsEveryIntegerDtype) {
  const std::vector<uint8_t> u8 = {0, 255};
  const std::vector<int8_t> i8 = {-1, 127};
  const std::vector<uint16_t> u16 = {65535};
  const std::vector<int16_t> i16 = {-2};
  const std::vector<uint32_t> u32 = {7, 0x80000000u};
  const std::vector<uint64_t> u64 = {5};
  const std::vector<int64_t> i64 = {-1, int64_t{1} << 31};
  const std::vector<float> f32 = {1};
  ASSERT_TRUE(WriteTensorFile(Path("ints"),
                              {{"u8", TensorDtype::kU8, {2}, BytesOf(u8)},
                               {"i8", TensorDtype::kI8, {2}, BytesOf(i8)},
                               {"u16", TensorDtype::kU16, {1}, BytesOf(u16)},
                               {"i16", TensorDtype::kI16, {1}, BytesOf(i16)},
                               {"u32", TensorDtype::kU32, {2}, BytesOf(u32)},
                               {"u64", TensorDtype::kU64, {1}, BytesOf(u64)},
                               {"i64", TensorDtype::kI64, {2}, BytesOf(i64)},
                               {"f32", TensorDtype::kF32, {1}, BytesOf(f32)}},
                              {})
                  .ok());
  const auto file = TensorFile::Open(Path("ints"));
  ASSERT_TRUE(file.ok()) << file.status();
  const auto read = [&](const char* name) { return file->ReadInt32(*file->Find(name)); };
  EXPECT_THAT(*read("u8"), ElementsAre(0, 255));
  EXPECT_THAT(*read("i8"), ElementsAre(-1, 127));
  EXPECT_THAT(*read("u16"), ElementsAre(65535));
  EXPECT_THAT(*read("i16"), ElementsAre(-2));
  EXPECT_THAT(*read("u64"), ElementsAre(5));
  EXPECT_THAT(std::string(read("u32").status().message()),
              HasSubstr("tensor \"u32\": element 1 is 2147483648, expected a value of 32 bits"));
  EXPECT_FALSE(read("i64").ok());
  EXPECT_THAT(*file->ReadInt64(*file->Find("i64")), ElementsAre(-1, int64_t{1} << 31));
  EXPECT_THAT(std::string(read("f32").status().message()),
              HasSubstr("tensor \"f32\" is F32 [1], expected integers"));
}

TEST_F(TensorFileTest, SaysHowShortACutFileIs) {
  const std::string good = GoodFile();
  for (size_t size : {size_t{0}, size_t{7}}) {
    ExpectRefused(good.substr(0, size),
                  "cut short: " + std::to_string(size) + " bytes, expected 8");
  }
  ExpectRefused(good.substr(0, 20), "cut short: 20 bytes, expected ");
  ExpectRefused(good.substr(0, good.size() - 1), "cut short: " + std::to_string(good.size() - 1) +
                                                     " bytes, expected " +
                                                     std::to_string(good.size()));
  ExpectRefused(good + "x", "too long: ");
}

TEST_F(TensorFileTest, RefusesGarbage) {
  ExpectRefused(WithLength(100'000'001, std::string(64, ' ')),
                "no safetensors file: header length");
  ExpectRefused(WithLength(~uint64_t{0}, ""), "no safetensors file: header length");
  ExpectRefused(std::string(64, '\xff'), "no safetensors file");
  ExpectRefused(WithLength(4, "abcd"), "malformed header: byte 0: expected {");
  ExpectRefused(WithLength(0, ""), "malformed header: byte 0: expected {");
  ExpectRefused(WithLength(51, R"({"a":{"dtype":"X9","shape":[1],"data_offsets":[0,1]})") + "}",
                "malformed header");
}

TEST_F(TensorFileTest, RefusesWhatIsNoFile) {
  const auto missing = TensorFile::Open(Path("missing"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("cannot open " + Path("missing")));
  EXPECT_THAT(std::string(TensorFile::Open(Path("")).status().message()),
              HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(TensorFile::Open(Path("pipe")).ok());  // and does not wait for a writer
}

TEST_F(TensorFileTest, WritesAllOrNothing) {
  GoodFile();
  const std::vector<uint8_t> byte = {1};
  const TensorSource good{"a", TensorDtype::kU8, {1}, BytesOf(byte)};
  TensorSource wrong = good;
  wrong.shape = {2};
  EXPECT_THAT(std::string(WriteTensorFile(Path("good"), {wrong}, {}).message()),
              HasSubstr("tensor \"a\": 1 bytes do not make U8 [2]"));
  EXPECT_FALSE(WriteTensorFile(Path("good"), {good, good}, {}).ok());
  wrong = good;
  wrong.name = "__metadata__";
  EXPECT_FALSE(WriteTensorFile(Path("good"), {wrong}, {}).ok());
  EXPECT_TRUE(TensorFile::Open(Path("good")).ok());  // still the old file

  EXPECT_EQ(WriteTensorFile(Path("no/such/directory"), {good}, {}).code(),
            absl::StatusCode::kNotFound);
  std::filesystem::create_directory(Path("directory"));
  EXPECT_FALSE(WriteTensorFile(Path("directory"), {good}, {}).ok());
  // No temporary stays behind.
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path(""))) {
    files += entry.is_regular_file();
  }
  EXPECT_EQ(files, 1);
  EXPECT_TRUE(WriteTensorFile(Path("good"), {}, {}).ok());
  EXPECT_TRUE(TensorFile::Open(Path("good"))->tensors().empty());
}

}  // namespace
}  // namespace perigee
