// What a worker tells of its GPU when it registers: how other GPUs of the host are reached from it.
#ifndef PERIGEE_WORKER_GPU_LINKS_H_
#define PERIGEE_WORKER_GPU_LINKS_H_

#include <functional>
#include <string>
#include <vector>

#include "kernels/device/device_info.h"
#include "kernels/device/nvml_library.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

// Of a CUDA device by its index, as this process sees it; an empty message where there is none.
// What cannot be read is left out. Creates no CUDA context.
v1::Gpu DescribeGpu(int device);

// The same from what was read. reaches: whether the device can use a peer's memory.
v1::Gpu MakeGpu(const CudaDevices& devices, int device, const std::string& driver,
                const std::vector<NvmlDevice>& nvml_devices,
                const std::function<bool(int peer)>& reaches);

}  // namespace perigee

#endif  // PERIGEE_WORKER_GPU_LINKS_H_
