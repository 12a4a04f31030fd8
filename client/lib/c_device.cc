// The part of client/lib/perigee.h about streams of the GPU.
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/c_attachment.h"
#include "client/lib/c_error.h"
#include "kernels/device/caller_stream.h"
#include "kernels/device/event.h"
#include "kernels/device/private_device_memory.h"

namespace perigee {
namespace {

// Memory that callers have not given back.
struct Allocations {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<PrivateDeviceMemory>> by_address;  // guarded by mutex
};
Allocations& GetAllocations() {
  static auto& allocations = *new Allocations;
  return allocations;
}

absl::StatusOr<int> DeviceOf(const perigee_attachment* attachment) {
  if (attachment == nullptr) return absl::InvalidArgumentError("attachment is NULL");
  if (attachment->client->device()) return attachment->client->device()->index;
  return absl::FailedPreconditionError("the attachment's memory is the host's");
}

CUstream_st* StreamOf(void* stream) { return static_cast<CUstream_st*>(stream); }

absl::Status Allocate(const perigee_attachment* attachment, uint64_t bytes, void** address) {
  const absl::StatusOr<int> device = DeviceOf(attachment);
  if (!device.ok()) return device.status();
  absl::StatusOr<std::unique_ptr<PrivateDeviceMemory>> memory =
      PrivateDeviceMemory::Allocate(*device, bytes);
  if (!memory.ok()) return memory.status();
  *address = (*memory)->data();
  Allocations& allocations = GetAllocations();
  std::lock_guard<std::mutex> lock(allocations.mutex);
  allocations.by_address[*address] = *std::move(memory);
  return absl::OkStatus();
}

absl::Status Mark(perigee_attachment* attachment, CUstream_st* stream) {
  const absl::StatusOr<int> device = DeviceOf(attachment);
  if (!device.ok()) return device.status();
  if (attachment->mark == nullptr) {
    absl::StatusOr<std::unique_ptr<Event>> mark = Event::Create(*device);
    if (!mark.ok()) return mark.status();
    attachment->mark = *std::move(mark);
  }
  return attachment->mark->Record(stream);
}

absl::Status HoldForMark(const perigee_attachment* attachment, CUstream_st* stream) {
  const absl::StatusOr<int> device = DeviceOf(attachment);
  if (!device.ok()) return device.status();
  return attachment->mark == nullptr ? absl::OkStatus() : attachment->mark->MakeWait(stream);
}

}  // namespace
}  // namespace perigee

using perigee::DeviceOf;
using perigee::StreamOf;
using perigee::TellNull;
using perigee::TellStatus;

int perigee_follow_stream(perigee_attachment* attachment, void* stream, perigee_error* error) {
  const absl::StatusOr<int> device = DeviceOf(attachment);
  if (!device.ok()) return TellStatus(device.status(), error);
  if (attachment->program && attachment->followed && *attachment->followed != StreamOf(stream)) {
    return TellStatus(absl::FailedPreconditionError("the program follows another stream already"),
                      error);
  }
  attachment->followed = StreamOf(stream);
  return TellStatus(absl::OkStatus(), error);
}

int perigee_hold_stream(perigee_attachment* attachment, void* stream, uint64_t command,
                        perigee_error* error) {
  const absl::StatusOr<int> device = DeviceOf(attachment);
  if (!device.ok()) return TellStatus(device.status(), error);
  const uint64_t next = attachment->client->next_command();
  if (command >= next) {
    // The stream would wait for what nobody has been given.
    return TellStatus(absl::OutOfRangeError(absl::StrCat("command ", command, " of ", next,
                                                         " has not been handed over")),
                      "UNKNOWN_COMMAND", error);
  }
  return TellStatus(attachment->client->MakeWait(StreamOf(stream), command), error);
}

int perigee_mark_stream(perigee_attachment* attachment, void* stream, perigee_error* error) {
  return TellStatus(perigee::Mark(attachment, StreamOf(stream)), error);
}

int perigee_hold_for_mark(perigee_attachment* attachment, void* stream, perigee_error* error) {
  return TellStatus(perigee::HoldForMark(attachment, StreamOf(stream)), error);
}

int perigee_copy(perigee_attachment* attachment, void* stream, void* to, const void* from,
                 uint64_t bytes, perigee_error* error) {
  const absl::StatusOr<int> device = DeviceOf(attachment);
  if (!device.ok()) return TellStatus(device.status(), error);
  return TellStatus(perigee::CopyOnStream(*device, StreamOf(stream), to, from, bytes), error);
}

int perigee_stream_done(perigee_attachment* attachment, void* stream, int32_t* done,
                        perigee_error* error) {
  if (done == nullptr) return TellNull("done", error);
  const absl::StatusOr<int> device = DeviceOf(attachment);
  if (!device.ok()) return TellStatus(device.status(), error);
  const absl::StatusOr<bool> is_done = perigee::IsStreamDone(*device, StreamOf(stream));
  if (is_done.ok()) *done = *is_done ? 1 : 0;
  return TellStatus(is_done.status(), error);
}

int perigee_allocate(perigee_attachment* attachment, uint64_t bytes, void** memory,
                     perigee_error* error) {
  if (memory == nullptr) return TellNull("memory", error);
  *memory = nullptr;
  return TellStatus(perigee::Allocate(attachment, bytes, memory), error);
}

void perigee_free(void* memory) {
  std::unique_ptr<perigee::PrivateDeviceMemory> freed;
  perigee::Allocations& allocations = perigee::GetAllocations();
  std::lock_guard<std::mutex> lock(allocations.mutex);
  const auto found = allocations.by_address.find(memory);
  if (found == allocations.by_address.end()) return;
  freed = std::move(found->second);
  allocations.by_address.erase(found);
}
