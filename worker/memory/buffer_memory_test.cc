#include "worker/memory/buffer_memory.h"

#include <unistd.h>

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"
#include "worker/testing/fake_backend.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BufferShape Shape(int32_t ranks, int32_t layers, int32_t slots) {
  BufferShape shape;
  shape.geometry = Geometry{ranks, 2 * ranks, 8, 2, slots, 4};
  shape.hidden = 16;
  shape.intermediate = layers > 0 ? 8 : 0;
  shape.layers = layers;
  return shape;
}

std::vector<FileDescriptor> Duplicates(const BufferMemory& memory) {
  std::vector<FileDescriptor> descriptors;
  for (const OfferedPart& part : memory.parts()) descriptors.emplace_back(dup(part.descriptor));
  return descriptors;
}

TEST(BufferMemoryTest, PeersSeeEachOthersPartsInOrderOfRank) {
  FakeBackend backend;
  const BufferShape shape = Shape(3, 2, 2);
  std::vector<std::unique_ptr<BufferMemory>> ranks;
  for (int32_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(*BufferMemory::Allocate(backend, shape, RankId(rank)));
  }
  for (int32_t rank = 0; rank < 3; ++rank) {
    for (int32_t peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      ASSERT_TRUE(ranks[rank]->ImportPeer(RankId(peer), Duplicates(*ranks[peer])).ok());
    }
  }
  std::memset(ranks[2]->shards()[2], 0x5a, 8);
  std::memset(ranks[2]->own_home(1), 0x17, 8);
  EXPECT_EQ(ranks[0]->shards()[2][7], std::byte{0x5a});
  EXPECT_EQ(ranks[1]->homes(1)[2][7], std::byte{0x17});
  EXPECT_EQ(ranks[1]->homes(0)[2][7], std::byte{0});
  std::memset(ranks[0]->shards()[1], 0x33, 8);
  EXPECT_EQ(ranks[1]->shards()[1][0], std::byte{0x33});
  std::memset(ranks[0]->shard_rows()[1], 0x44, 8);
  EXPECT_EQ(ranks[1]->own_shard_rows().data()[7], std::byte{0x44});
}

TEST(BufferMemoryTest, AShardWithoutRowsCanBeSharedToo) {
  FakeBackend backend;
  BufferShape shape = Shape(2, 0, 0);
  shape.geometry.tokens = 0;
  const auto own = BufferMemory::Allocate(backend, shape, RankId(0));
  const auto peer = BufferMemory::Allocate(backend, shape, RankId(1));
  ASSERT_TRUE(own.ok() && peer.ok());
  EXPECT_TRUE((*own)->ImportPeer(RankId(1), Duplicates(**peer)).ok());
}

TEST(BufferMemoryTest, PeersMappingsGoBeforeOwnMemory) {
  FakeBackend backend;
  const BufferShape shape = Shape(2, 1, 1);
  auto peer = *BufferMemory::Allocate(backend, shape, RankId(1));
  auto own = *BufferMemory::Allocate(backend, shape, RankId(0));
  ASSERT_TRUE(own->ImportPeer(RankId(1), Duplicates(*peer)).ok());
  own.reset();
  const std::vector<std::string> gone = backend.ledger()->gone();
  ASSERT_EQ(gone.size(), 7u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gone[i], "peer");
}

TEST(BufferMemoryTest, CountsWhatItTakes) {
  FakeBackend backend;
  for (const auto& [layers, slots, read_only, has_slots] :
       {std::tuple{0, 0, 0, false}, {0, 2, 0, false}, {2, 0, 2, false}, {2, 2, 3, true}}) {
    auto memory = *BufferMemory::Allocate(backend, Shape(2, layers, slots), RankId(0));
    EXPECT_EQ(backend.ledger()->alive("shared"), 2);
    EXPECT_EQ(backend.ledger()->alive("read_only"), read_only);
    EXPECT_EQ(backend.ledger()->alive("private"), 0);
    EXPECT_EQ(memory->slots() != nullptr, has_slots);
    uint64_t parts_bytes = 0;
    for (const PartDescription& part : memory->part_descriptions()) parts_bytes += part.size_bytes;
    EXPECT_GE(memory->allocated_bytes(), parts_bytes);
    EXPECT_EQ(memory->allocated_bytes() > parts_bytes, has_slots) << "peers do not fetch them";
  }
}

// Slots and their gradients are one pool for all layers.
TEST(BufferMemoryTest, ALayerAddsItsOwnExpertsAndNothingElse) {
  for (const bool gradients : {false, true}) {
    std::vector<uint64_t> taken;
    for (const int32_t layers : {1, 4, 16}) {
      BufferShape shape = Shape(2, layers, 2);
      shape.gradients = gradients;
      taken.push_back(BufferMemory::NeededBytes(shape));
    }
    const uint64_t home = WeightsLayout::Home({16, 8}, 2).size_bytes +
                          (gradients ? GradientsLayout::Create({16, 8}, 2).size_bytes : 0);
    EXPECT_EQ(taken[1] - taken[0], 3 * home);
    EXPECT_EQ(taken[2] - taken[1], 12 * home);
  }
}

// Off, the shard is what it was, to the byte.
TEST(BufferMemoryTest, OutputSlotsTakeWhatTheyAreAndNothingWithout) {
  FakeBackend backend;
  BufferShape shape = Shape(2, 1, 2);
  const ShardLayout layout = ShardLayout::Create(shape.geometry, shape.hidden);
  const uint64_t without = BufferMemory::NeededBytes(shape);
  const auto rows_part = [&] {
    return (*BufferMemory::Allocate(backend, shape, RankId(0)))->own_shard_rows().size_bytes();
  };
  EXPECT_EQ(rows_part(), layout.rows_bytes());
  shape.dispatch_output_slots = 3;
  EXPECT_EQ(rows_part(), 4 * layout.rows_bytes());
  EXPECT_EQ(BufferMemory::NeededBytes(shape), without + 3 * layout.rows_bytes());
  shape.dispatch_output_slots = 0;
  shape.expert_output_slots = 2;
  EXPECT_EQ(rows_part(), layout.rows_bytes());
  EXPECT_EQ(BufferMemory::NeededBytes(shape) - without,
            2 * sizeof(BFloat16) * shape.geometry.logical_rows() * shape.hidden);
}

TEST(BufferMemoryTest, GradientsAreTakenWhereAskedForAndSeenByPeers) {
  FakeBackend backend;
  BufferShape shape = Shape(2, 3, 2);
  const uint64_t without = BufferMemory::NeededBytes(shape);
  EXPECT_EQ((*BufferMemory::Allocate(backend, shape, RankId(0)))->own_gradients(), nullptr);
  shape.gradients = true;
  auto own = *BufferMemory::Allocate(backend, shape, RankId(0));
  auto peer = *BufferMemory::Allocate(backend, shape, RankId(1));
  EXPECT_EQ(own->allocated_bytes() - without, own->own_gradients()->size_bytes());
  EXPECT_EQ(own->part_descriptions().back().kind, static_cast<uint32_t>(PartKind::kGradients));
  ASSERT_TRUE(own->ImportPeer(RankId(1), Duplicates(*peer)).ok());
  ASSERT_TRUE(peer->ImportPeer(RankId(0), Duplicates(*own)).ok());
  const ExpertGradients of_peer = peer->gradients(2);
  std::memset(of_peer.own_slots, 0x5a, 8);
  EXPECT_EQ(own->gradients(0).slots[1][7], std::byte{0x5a});
  EXPECT_EQ(of_peer.layer, 2);
  EXPECT_EQ(of_peer.shape, shape.weights());
  // Matrices of layers and of slots lie apart from each other, within the block.
  const auto* begin = reinterpret_cast<const float*>(of_peer.own_slots);
  const size_t slot_floats = GradientsLayout::Create(shape.weights(), 2).size_bytes / sizeof(float);
  EXPECT_EQ(peer->gradients(0).home_gate - begin, static_cast<ptrdiff_t>(slot_floats));
  EXPECT_EQ(of_peer.home_gate - peer->gradients(1).home_gate, static_cast<ptrdiff_t>(slot_floats));
  EXPECT_GE(of_peer.home_up - of_peer.home_gate, 2 * 16 * 8);
  EXPECT_GE(of_peer.home_down - of_peer.home_up, 2 * 16 * 8);
}

TEST(BufferMemoryTest, ASourceIsTakenWhereAskedForAndReadByPeers) {
  FakeBackend backend;
  BufferShape shape = Shape(2, 1, 2);
  const uint64_t without = BufferMemory::NeededBytes(shape);
  int others = 0;  // that nobody but their owner writes
  {
    const auto off = *BufferMemory::Allocate(backend, shape, RankId(0));
    EXPECT_EQ(off->own_source(), nullptr);
    EXPECT_TRUE(off->sources().empty());
    others = backend.ledger()->alive("read_only");
  }
  shape.source_storage = true;
  auto own = *BufferMemory::Allocate(backend, shape, RankId(0));
  auto peer = *BufferMemory::Allocate(backend, shape, RankId(1));
  EXPECT_EQ(backend.ledger()->alive("read_only"), 2 * others) << "a local client may write it";
  EXPECT_EQ(own->allocated_bytes() - without, own->own_source()->size_bytes());
  EXPECT_EQ(own->own_source()->size_bytes(),
            SourceLayout::Create(shape.geometry, shape.hidden).size_bytes);
  EXPECT_EQ(own->part_descriptions().back().kind, static_cast<uint32_t>(PartKind::kSource));
  ASSERT_TRUE(own->ImportPeer(RankId(1), Duplicates(*peer)).ok());
  ASSERT_TRUE(peer->ImportPeer(RankId(0), Duplicates(*own)).ok());
  peer->sources()[1][5] = std::byte{0x5a};
  EXPECT_EQ(own->sources()[1][5], std::byte{0x5a});
}

TEST(BufferMemoryTest, PeersRowsAreForClientsWhereAskedFor) {
  FakeBackend backend;
  for (const bool asked_for : {false, true}) {
    BufferShape shape = Shape(2, 1, 1);
    shape.peer_store = asked_for;
    auto own = *BufferMemory::Allocate(backend, shape, RankId(0));
    auto peer = *BufferMemory::Allocate(backend, shape, RankId(1));
    ASSERT_TRUE(own->ImportPeer(RankId(1), Duplicates(*peer)).ok());
    const std::vector<int> descriptors = own->peer_rows_descriptors();
    ASSERT_EQ(descriptors.size(), asked_for ? 1u : 0u);
    if (!asked_for) continue;
    // It is the peer's own memory.
    const std::byte mark{0x5a};
    ASSERT_EQ(pwrite(descriptors[0], &mark, 1, 7), 1);
    EXPECT_EQ(peer->own_shard_rows().data()[7], mark);
  }
}

TEST(BufferMemoryTest, TooLittleMemoryNamesBothNumbers) {
  FakeBackend backend;
  backend.set_free_bytes(1000);
  const BufferShape shape = Shape(2, 1, 1);
  const absl::Status status = BufferMemory::Allocate(backend, shape, RankId(0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(std::to_string(BufferMemory::NeededBytes(shape))));
  EXPECT_THAT(message, HasSubstr("1000"));
}

TEST(BufferMemoryTest, AnInterruptEndsItAfterTheBlockUnderWay) {
  for (const int wanted_blocks : {1, 2, 3}) {
    FakeBackend backend;
    Interrupt stop;
    int blocks = 0;
    backend.set_on_allocate_shared([&] {
      if (++blocks == wanted_blocks) stop.Raise();
    });
    EXPECT_EQ(BufferMemory::Allocate(backend, Shape(2, 2, 2), RankId(0), &stop).status().code(),
              absl::StatusCode::kCancelled);
    EXPECT_EQ(blocks, wanted_blocks);
    EXPECT_EQ(backend.ledger()->gone().size(), static_cast<size_t>(wanted_blocks));
  }
}

TEST(BufferMemoryTest, AWrongDescriptorIsRefusedNamingItsRank) {
  FakeBackend backend;
  const BufferShape shape = Shape(2, 1, 1);
  auto peer = *BufferMemory::Allocate(backend, shape, RankId(1));
  auto own = *BufferMemory::Allocate(backend, shape, RankId(0));
  std::vector<FileDescriptor> descriptors = Duplicates(*peer);
  std::swap(descriptors[0], descriptors[1]);
  const absl::Status status = own->ImportPeer(RankId(1), std::move(descriptors));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  own.reset();
  EXPECT_EQ(backend.ledger()->alive("peer"), 0);
}

}  // namespace
}  // namespace perigee
