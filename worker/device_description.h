// What `perigee-worker --describe_devices` prints: all that decides whether the cuda backend runs
// here, for whoever asks on an operator's behalf and does not link CUDA itself.
#ifndef PERIGEE_WORKER_DEVICE_DESCRIPTION_H_
#define PERIGEE_WORKER_DEVICE_DESCRIPTION_H_

#include <functional>
#include <string>
#include <vector>

#include "kernels/device/device_info.h"
#include "kernels/device/nvml_library.h"

namespace perigee {

struct HandleKinds;  // kernels/device/handle_kinds.h

// Lines "KEY VALUE"; a fact that cannot be read has no line, or one that says why:
//   built_with_cuda yes|no
//   driver_cuda N, runtime_cuda N   the CUDA that the driver runs and that this is built with,
//   13020 problem WHY                     there is no device, or one is not described devices N
//   device.I.name, .compute (9.0), .sms, .memory_bytes, .pci, .uuid
//   driver VERSION, or nvml_problem WHY
//   device.I.nvlinks, .persistence (on, off)
//   nccl VERSION, or nccl_problem WHY
//   device.I.peers J K|none         the devices whose memory it can use
//   device.I.handle.fd ok|WHY, .handle.fabric ok|WHY
// What takes longest, and may hang with a sick driver, comes last. Opens NCCL: call it while the
// process has one thread.
void DescribeDevices(const std::function<void(const std::string& line)>& say);

// Its parts, from what was read.
std::vector<std::string> DeviceLines(const CudaDevices& devices);
std::vector<std::string> NvmlLines(const CudaDevices& devices,
                                   const std::vector<NvmlDevice>& nvml_devices);
std::vector<std::string> HandleLines(int device, const HandleKinds& kinds);

}  // namespace perigee

#endif  // PERIGEE_WORKER_DEVICE_DESCRIPTION_H_
