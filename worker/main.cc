// perigee-worker: one worker process.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "kernels/backend_registry.h"
#include "kernels/device/device_info.h"
#include "kernels/device/device_place.h"
#include "kernels/device/nccl_library.h"
#include "proto/local/stop_watch.h"
#include "proto/support/command_line.h"
#include "proto/support/event_log.h"
#include "worker/device_description.h"
#include "worker/device_list.h"
#include "worker/gpu_links.h"
#include "worker/host_id.h"
#include "worker/worker.h"

ABSL_FLAG(std::string, name, "", "name of this worker: lower-case letters, digits and dashes");
ABSL_FLAG(std::string, coordinator, "", "HOST:PORT of the coordinator");
ABSL_FLAG(std::string, address, "127.0.0.1:0", "HOST:PORT to serve clients at; port 0: any");
ABSL_FLAG(std::string, socket_dir, "", "directory, private to this user, for the peers' socket");
ABSL_FLAG(std::string, attach_dir, "",
          "directory of the socket where local clients attach; empty: --socket_dir");
ABSL_FLAG(std::vector<std::string>, attach_uids, {},
          "numbers of users beside this one whose processes may attach, separated by commas; "
          "--attach_dir is then one that they can enter");
ABSL_FLAG(std::string, backend, "host", "what runs the data path: host or cuda");
ABSL_FLAG(absl::optional<int>, device, absl::nullopt,
          "backend cuda: index of this worker's device; empty: 0");
ABSL_FLAG(absl::optional<int>, sms, absl::nullopt,
          "backend cuda: SMs of the device that this worker's buffers may take, for workers that "
          "share it; empty or 0: all");
ABSL_FLAG(absl::optional<std::string>, memory_handle, absl::nullopt,
          "backend cuda: how peers get at its memory, auto, fd or fabric; empty: auto");
ABSL_FLAG(int, threads, 1, "threads that share one operation's rows");
ABSL_FLAG(std::string, host, "", "name of this machine; empty: its host name");
ABSL_FLAG(bool, list_devices, false, "print the CUDA devices of this machine and exit");
ABSL_FLAG(bool, describe_devices, false,
          "print what decides whether backend cuda runs on this machine and exit");
ABSL_FLAG(int, ready_fd, -1, "descriptor to write this worker's address to once it is registered");
ABSL_FLAG(int, death_fd, -1, "descriptor whose end means that the supervisor has gone");

namespace perigee {
namespace {

const std::vector<std::string> kFlags = {
    "name",     "coordinator", "address",      "socket_dir",
    "host",     "attach_dir",  "attach_uids",  "backend",
    "device",   "sms",         "threads",      "memory_handle",
    "ready_fd", "death_fd",    "list_devices", "describe_devices"};

// Every mapping of a peer's memory holds a descriptor.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

void AnnounceReady(int fd, const std::string& address) {
  if (fd < 0) return;
  const std::string line = address + "\n";
  if (write(fd, line.data(), line.size()) < 0) {
    LogEvent(LogLevel::kWarning, "ready_fd_broken", {{"fd", fd}});
  }
  close(fd);
}

int Fail(const absl::Status& status, int exit_status) {
  std::fprintf(stderr, "perigee-worker: %s\n", std::string(status.message()).c_str());
  return exit_status;
}

// 2 where other flags or another machine are needed, 1 where the same may work later.
int StartExitStatus(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
                 absl::IsUnimplemented(status)
             ? 2
             : 1;
}

absl::StatusOr<std::unique_ptr<Backend>> BackendFromFlags() {
  const std::string name = absl::GetFlag(FLAGS_backend);
  const absl::optional<int> device = absl::GetFlag(FLAGS_device);
  const absl::optional<int> sms = absl::GetFlag(FLAGS_sms);
  const absl::optional<std::string> memory_handle = absl::GetFlag(FLAGS_memory_handle);
  // Taken in silence, they would let its user believe that a device is used.
  if (name == "host" && (device || sms || memory_handle)) {
    return absl::InvalidArgumentError(
        absl::StrCat("flag --", device ? "device" : (sms ? "sms" : "memory_handle"),
                     " is for --backend=cuda, and the backend is host"));
  }
  BackendChoice choice;
  choice.device = device.value_or(choice.device);
  choice.sms = sms.value_or(choice.sms);
  choice.memory_handle = memory_handle.value_or(choice.memory_handle);
  return CreateBackend(name, choice);
}

absl::StatusOr<std::set<uint32_t>> AttachUids() {
  std::set<uint32_t> uids;
  for (const std::string& text : absl::GetFlag(FLAGS_attach_uids)) {
    uint32_t uid = 0;
    if (!absl::SimpleAtoi(text, &uid)) {
      return absl::InvalidArgumentError(
          absl::StrCat("flag --attach_uids has '", text, "', expected numbers of users"));
    }
    uids.insert(uid);
  }
  return uids;
}

absl::StatusOr<WorkerOptions> OptionsFromFlags() {
  for (const char* required : {"name", "coordinator", "socket_dir"}) {
    if (absl::FindCommandLineFlag(required)->CurrentValue().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("flag --", required, " is required"));
    }
  }
  WorkerOptions options;
  options.name = absl::GetFlag(FLAGS_name);
  options.host = absl::GetFlag(FLAGS_host).empty() ? HostId() : absl::GetFlag(FLAGS_host);
  options.coordinator = absl::GetFlag(FLAGS_coordinator);
  options.address = absl::GetFlag(FLAGS_address);
  options.socket_dir = absl::GetFlag(FLAGS_socket_dir);
  options.threads = absl::GetFlag(FLAGS_threads);
  options.attach_dir = absl::GetFlag(FLAGS_attach_dir);
  absl::StatusOr<std::set<uint32_t>> uids = AttachUids();
  if (!uids.ok()) return uids.status();
  options.attach_uids = *std::move(uids);
  absl::StatusOr<std::unique_ptr<Backend>> backend = BackendFromFlags();
  if (!backend.ok()) return backend.status();
  options.backend = *std::move(backend);
  if (absl::GetFlag(FLAGS_backend) == "cuda") {
    options.device_place = DescribeDevicePlace(absl::GetFlag(FLAGS_device).value_or(0));
    options.gpu = DescribeGpu(absl::GetFlag(FLAGS_device).value_or(0));
  }
  return options;
}

int Run(WorkerOptions options, StopWatch& watch) {
  options.stop = &watch.stop();
  options.on_leave = [&watch](const absl::Status&) { watch.Leave(); };
  absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
  if (absl::IsCancelled(worker.status())) return watch.exit_status();
  if (!worker.ok()) return Fail(worker.status(), absl::IsInvalidArgument(worker.status()) ? 2 : 1);
  watch.set_leftover((*worker)->socket_path());
  AnnounceReady(absl::GetFlag(FLAGS_ready_fd), (*worker)->address());
  watch.Await();
  (*worker)->Shutdown();
  return watch.exit_status();
}

int ListDevices() {
  const absl::StatusOr<std::string> text = DeviceListText(QueryCudaDevices());
  if (!text.ok()) return Fail(text.status(), 2);
  std::printf("%s", text->c_str());
  return 0;
}

// Flushed line by line: whoever waits no longer has those that were ready.
int DescribeDevicesOnStdout() {
  DescribeDevices([](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  });
  return 0;
}

// Before CUDA is first used: a stream for each buffer, and no two in one hardware queue. Workers
// that share a device have few buffers each, and MPS has not so many queues for all of them.
void SeparateHardwareQueues() {
  if (absl::GetFlag(FLAGS_sms).value_or(0) > 0) return;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

int Main(const std::vector<std::string>& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::printf("perigee-worker: one worker of a Perigee cluster\n%s",
                DescribeFlags(kFlags).c_str());
    return 0;
  }
  if (absl::Status status = ParseFlags(kFlags, arguments); !status.ok()) return Fail(status, 2);
  if (absl::GetFlag(FLAGS_list_devices)) return ListDevices();
  if (absl::GetFlag(FLAGS_describe_devices)) return DescribeDevicesOnStdout();
  SeparateHardwareQueues();
  TurnNvlinkMulticastOff();
  absl::StatusOr<WorkerOptions> options = OptionsFromFlags();
  if (!options.ok()) return Fail(options.status(), StartExitStatus(options.status()));
  InitLogging(absl::StrCat("worker/", options->name), LogLevel::kInfo);
  RaiseDescriptorLimit();
  StopWatch watch(absl::GetFlag(FLAGS_death_fd));
  return Run(*std::move(options), watch);
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  return perigee::Main(std::vector<std::string>(argv + 1, argv + argc));
}
