// From the mark of an output slot's last reader to the slot being taken: a dispatch that waits for
// that reader already, from the mark to its end, beside the same dispatch into a slot that nobody
// reads. What the first takes longer is the mark's way, with what the dispatch had done before it
// waited taken off. Microseconds.
//
//   bazel run //tests/bench:slot_mark_bench -- [ROUNDS]
//       Backend host, a rank of this process. Attachments of backend host have no streams, so what
//       stands in for the one that serves is a thread that looks at the word without a pause.
//
//   perigee up --ranks 1 --backend cuda
//   bazel run //tests/bench:slot_mark_bench -- [ROUNDS] --address=ADDRESS
//       A local client and its worker. A stream waits for a word of this process, which the host
//       sets, and stores the mark. The same stream store, waited for by this thread, stands apart.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/lib/client.h"
#include "client/lib/local_client.h"
#include "kernels/backend_registry.h"
#include "kernels/buffer_rings.h"
#include "kernels/common/check.h"
#include "kernels/device/caller_stream.h"
#include "kernels/device/stream.h"
#include "proto/local/command_page.h"
#include "proto/local/stream_words.h"
#include "tests/bench/bench_table.h"
#include "tests/contract/device_array.h"
#include "tests/contract/rank_group.h"

namespace perigee {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr int32_t kTokens = 64;
constexpr int32_t kHidden = 256;
constexpr int32_t kTopk = 2;
constexpr int32_t kExperts = 4;
constexpr int kWarmRounds = 3;
constexpr LocalPlanId kPlan(1);
// The dispatch waits by then, and the worker looks without a pause, or every 20 us.
constexpr absl::Duration kAwake = absl::Milliseconds(2);
constexpr absl::Duration kSlow = absl::Milliseconds(20);

template <typename Value>
Value Need(absl::StatusOr<Value> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  if (!value.ok()) std::exit(1);
  return *std::move(value);
}
void Need(const absl::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  if (!status.ok()) std::exit(1);
}

absl::Duration Now() { return RealClock().Monotonic(); }

void Print(const std::string& what, const std::vector<absl::Duration>& waiting,
           const std::vector<absl::Duration>& free) {
  PrintTimes(absl::StrCat("mark to the end of a dispatch that has waited ", what), waiting);
  PrintTimes("  the same dispatch, no reader", free);
  std::printf("%-52s %9.2f\n", "  difference of p50",
              absl::ToDoubleMicroseconds(Median(waiting) - Median(free)));
}

// Backend host.
class HostBench {
 public:
  HostBench() : backend_(Need(CreateBackend("host"))), group_(*backend_, Options()) {
    std::vector<int32_t> routes(kTokens * kTopk);
    for (size_t i = 0; i < routes.size(); ++i) routes[i] = static_cast<int32_t>(i % kExperts);
    hidden_ = std::make_unique<DeviceArray<BFloat16>>(
        *backend_, std::vector<BFloat16>(kTokens * kHidden, ToBFloat16(1)));
    routes_ = std::make_unique<DeviceArray<int32_t>>(*backend_, routes);
  }

  void Run(int rounds) {
    std::vector<absl::Duration> waiting, free;
    for (int round = -kWarmRounds; round < rounds; ++round) {
      const RingSlot read = Dispatch();
      const absl::Duration start = Now();
      const RingSlot other = Dispatch();
      const absl::Duration unread = Now() - start;
      Need(rings().Release(other));
      const absl::Duration marked = TakeBehindReader(read);
      Need(rings().Release(Dispatch()));  // the other one's turn
      if (round < 0) continue;
      free.push_back(unread);
      waiting.push_back(marked);
    }
    Print("2 ms", waiting, free);
  }

 private:
  static RankGroupOptions Options() {
    RankGroupOptions options;
    options.geometry = {1, kExperts, kTokens, kTopk, kExperts, 8};
    options.hidden = kHidden;
    options.rings.dispatch_slots = 2;
    return options;
  }
  BufferRings& rings() { return *group_.path(0).rings(); }
  RingSlot Dispatch() {
    return Need(rings().Dispatch(group_.NextSequence(),
                                 {hidden_->data(), routes_->data(), nullptr, kTokens}, {}))
        .slot;
  }

  // The time from the mark on. What is taken is released.
  absl::Duration TakeBehindReader(const RingSlot& read) {
    const ReleaseWord word = Need(rings().ReleaseByWord(read));
    const LocalReleaseSlot release{
        {read.index, read.identity}, LocalRing::kDispatchOutput, SlotRead::kByStream};
    std::thread serves([&] {
      const absl::Duration begin = Now();
      while (!IsRead(*page_, release)) PERIGEE_CHECK(Now() - begin < kLong);
      word.Pass();
    });
    std::future<absl::Duration> ended = std::async(std::launch::async, [&] {
      const RingSlot taken = Dispatch();
      const absl::Duration end = Now();
      Need(rings().Release(taken));
      return end;
    });
    absl::SleepFor(kAwake);
    PERIGEE_CHECK(ended.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
    const absl::Duration start = Now();
    std::atomic_ref<uint64_t>(ReadWord(*page_, release.word))
        .store(read.identity, std::memory_order_release);
    const absl::Duration took = ended.get() - start;
    serves.join();
    return took;
  }

  std::unique_ptr<Backend> backend_;
  RankGroup group_;
  std::unique_ptr<DeviceArray<BFloat16>> hidden_;
  std::unique_ptr<DeviceArray<int32_t>> routes_;
  const std::unique_ptr<CommandPage> page_ = std::make_unique<CommandPage>();
};

// A page that a stream and the host see.
struct alignas(4096) Gate {
  uint64_t opened = 0;  // by the host, to the round
  uint64_t passed = 0;  // by the stream
  std::byte rest[4096 - 2 * sizeof(uint64_t)] = {};
};

class ClusterBench {
 public:
  explicit ClusterBench(const std::string& address) {
    client_ = Need(Client::Connect({.address = address, .stop = stop_.get_token()}));
    group_ = Need(client_->CreateGroup({.ranks = 1, .backend = "cuda"}));
    BufferOptions options;
    v1::BufferShape& shape = options.shape;
    shape.set_tokens(kTokens);
    shape.set_hidden(kHidden);
    shape.set_topk(kTopk);
    shape.set_experts(kExperts);
    shape.set_slots(kExperts);
    shape.set_token_padding(8);
    shape.set_intermediate(64);
    shape.set_layers(1);
    shape.set_dispatch_output_slots(2);
    const std::string buffer = Need(client_->CreateBuffer(group_.name(), options)).name();
    local_ = Need(LocalClient::Attach(
        Need(client_->IssueAttachTicket(buffer, Generation(group_.generation()), RankId(0)))));
    device_ = local_->memory().device;
    if (device_ < 0) Need(absl::FailedPreconditionError("the worker's memory is on no GPU"));
    stream_ = Need(Stream::Create(device_));
    words_ = Need(RegisteredMemory::Register(device_, reinterpret_cast<std::byte*>(gate_.get()),
                                             sizeof(Gate)));
    FillInputs();
  }
  ~ClusterBench() {
    local_.reset();
    (void)client_->DeleteGroup(group_.name());
  }

  void Run(int rounds, const std::string& what, absl::Duration pause) {
    std::vector<absl::Duration> waiting, free, stream_only;
    for (int round = -kWarmRounds; round < rounds; ++round) {
      const LocalSlot read = Dispatch();
      const absl::Duration start = Now();
      const LocalSlot other = Dispatch();
      const absl::Duration unread = Now() - start;
      Release(other);
      const absl::Duration marked = TakeBehindReader(read, pause);
      Release(Dispatch());  // the other one's turn
      const absl::Duration seen = SeeStore();
      if (round < 0) continue;
      free.push_back(unread);
      waiting.push_back(marked);
      stream_only.push_back(seen);
    }
    Print(what, waiting, free);
    PrintTimes("  of it until this process would see a stream's store", stream_only);
  }

 private:
  void FillInputs() {
    const std::unique_ptr<Backend> backend = Need(CreateBackend("cuda"));
    const std::vector<BFloat16> hidden(local_->hidden().size(), ToBFloat16(1));
    std::vector<int32_t> routes(local_->topk_experts().size());
    for (size_t i = 0; i < routes.size(); ++i) routes[i] = static_cast<int32_t>(i % kExperts);
    Need(backend->CopyIn(
        reinterpret_cast<std::byte*>(local_->hidden().data()),
        {reinterpret_cast<const std::byte*>(hidden.data()), hidden.size() * sizeof(BFloat16)}));
    Need(backend->CopyIn(
        reinterpret_cast<std::byte*>(local_->topk_experts().data()),
        {reinterpret_cast<const std::byte*>(routes.data()), routes.size() * sizeof(int32_t)}));
  }
  LocalCompletion Done(const LocalOperation& operation) {
    LocalCompletion done = Need(local_->Run(operation, kLong));
    Need(done.status);
    return done;
  }
  LocalSlot Dispatch() { return Done(LocalDispatch{kPlan, kTokens, false, kAnySlot}).slot; }
  void Release(const LocalSlot& slot) { Done(LocalReleaseSlot{slot}); }
  // The stream goes on when Open is called.
  void Close() {
    ++round_;
    Need(words_->WaitOnStream(stream_->get(), &gate_->opened, round_));
  }
  void Open() { std::atomic_ref<uint64_t>(gate_->opened).store(round_, std::memory_order_release); }

  absl::Duration TakeBehindReader(const LocalSlot& read, absl::Duration pause) {
    Close();
    (void)Need(local_->ReleaseSlotBehind(stream_->get(), read));
    const uint64_t command = Need(local_->Submit(LocalDispatch{kPlan, kTokens, false, kAnySlot}));
    absl::SleepFor(pause);
    const absl::Duration start = Now();
    Open();
    const LocalCompletion done = Need(local_->Wait(command, kLong));
    const absl::Duration took = Now() - start;
    Need(done.status);
    Release(done.slot);
    return took;
  }

  absl::Duration SeeStore() {
    Close();
    Need(words_->WriteOnStream(stream_->get(), &gate_->passed, round_));
    absl::SleepFor(kAwake);
    const absl::Duration start = Now();
    Open();
    while (std::atomic_ref<uint64_t>(gate_->passed).load(std::memory_order_acquire) != round_) {
      PERIGEE_CHECK(Now() - start < kLong);
    }
    return Now() - start;
  }

  const std::unique_ptr<Gate> gate_ = std::make_unique<Gate>();
  std::stop_source stop_;
  std::unique_ptr<Client> client_;
  v1::Group group_;
  std::unique_ptr<LocalClient> local_;
  int device_ = -1;
  uint64_t round_ = 0;
  std::unique_ptr<RegisteredMemory> words_;
  std::unique_ptr<Stream> stream_;
};

int Main(int argc, char** argv) {
  const std::string kAddress = "--address=";
  std::string address;
  int rounds = 1000;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(kAddress, 0) == 0) {
      address = argument.substr(kAddress.size());
    } else if (!absl::SimpleAtoi(argument, &rounds) || rounds < 1) {
      std::fprintf(stderr,
                   "usage: slot_mark_bench [ROUNDS] [--address=ADDRESS]\n"
                   "ROUNDS: 1 or more. ADDRESS: of a cluster with a cuda worker; without one,\n"
                   "backend host in this process\n");
      return 2;
    }
  }
  PrintCircumstances();
  std::printf("dispatch backend %s, R 1, S %d, H %d, K %d, E %d; %d rounds\n",
              address.empty() ? "host" : "cuda", kTokens, kHidden, kTopk, kExperts, rounds);
  PrintTimesHeader();
  if (address.empty()) {
    HostBench().Run(rounds);
    return 0;
  }
  ClusterBench bench(address);
  bench.Run(rounds, "2 ms", kAwake);
  bench.Run(std::max(1, rounds / 10), "20 ms", kSlow);
  return 0;
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) { return perigee::Main(argc, argv); }
