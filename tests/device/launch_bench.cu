// What a kernel costs beside its work: chains of kernels of a known length, launched into a stream
// or replayed as CUDA graphs. Several processes may run it at once: figures are those of the first.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace perigee {
namespace {

constexpr char kUsage[] =
    "usage: launch_bench [PROCESSES]\n\n"
    "Chains of kernels of 20 us with the blocks, shared memory and arguments of a dispatch: what\n"
    "each takes beyond its 20 us, on the device and of the host, medians of 30. PROCESSES "
    "(default\n"
    "1) do the same at once: under MPS, as ranks that share a device.\n";
constexpr uint64_t kKernelNs = 20'000;
constexpr int kChain = 64;
constexpr int kRuns = 30;
constexpr int kSharedBytes = 222 << 10;

struct Arguments {
  uint64_t ns = kKernelNs;
  std::byte others[600] = {};
};

__device__ uint64_t DeviceTime() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void __launch_bounds__(1024, 1) SpinKernel(Arguments arguments) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const uint64_t end = DeviceTime() + arguments.ns;
  while (DeviceTime() < end) {
  }
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// A benchmark: what fails ends it.
void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "launch_bench: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}

void Launch(cudaStream_t stream, bool programmatic) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(16);
  config.blockDim = dim3(1024);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = programmatic ? 1 : 0;
  Check(cudaLaunchKernelEx(&config, SpinKernel, Arguments()), "launching");
}

struct Graph {
  cudaGraphExec_t executable = nullptr;
  std::vector<cudaGraphNode_t> nodes;
};

Graph Capture(cudaStream_t stream, int kernels, bool programmatic) {
  cudaGraph_t captured = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  for (int i = 0; i < kernels; ++i) Launch(stream, programmatic);
  Check(cudaStreamEndCapture(stream, &captured), "capturing");
  Graph graph;
  size_t count = kernels;
  graph.nodes.resize(count);
  Check(cudaGraphGetNodes(captured, graph.nodes.data(), &count), "reading the graph");
  Check(cudaGraphInstantiate(&graph.executable, captured), "instantiating");
  return graph;
}

void Replay(cudaStream_t stream, const Graph& graph, bool new_arguments) {
  Arguments arguments;
  void* parameters[] = {&arguments};
  if (new_arguments) {
    for (cudaGraphNode_t node : graph.nodes) {
      cudaKernelNodeParams params = {};
      Check(cudaGraphKernelNodeGetParams(node, &params), "reading arguments");
      params.kernelParams = parameters;
      Check(cudaGraphExecKernelNodeSetParams(graph.executable, node, &params), "new arguments");
    }
  }
  Check(cudaGraphLaunch(graph.executable, stream), "replaying");
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// `queue` queues the whole chain.
template <typename Queue>
void Measure(cudaStream_t stream, const char* name, int step, const Queue& queue) {
  using Clock = std::chrono::steady_clock;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Check(cudaEventCreate(&begin), "making an event");
  Check(cudaEventCreate(&end), "making an event");
  std::vector<double> device;
  std::vector<double> host;
  for (int run = 0; run < kRuns; ++run) {
    Check(cudaEventRecord(begin, stream), "recording");
    const auto start = Clock::now();
    queue();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    Check(cudaEventRecord(end, stream), "recording");
    Check(cudaStreamSynchronize(stream), "running");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin, end), "timing");
    device.push_back(1e3 * ms / kChain - 1e-3 * kKernelNs);
    host.push_back(took.count() / kChain);
  }
  std::printf("%-28s %7d %10.2f %10.2f\n", name, step, Median(device), Median(host));
}

void MeasureAll(cudaStream_t stream) {
  std::printf("%-28s %7s %10s %10s\n", "", "kernels", "device us", "host us");
  for (const bool programmatic : {false, true}) {
    Measure(stream, programmatic ? "stream, programmatic" : "stream", 1, [&] {
      for (int i = 0; i < kChain; ++i) Launch(stream, programmatic);
    });
  }
  for (const int step : {2, 4, 8}) {
    const Graph graph = Capture(stream, step, true);
    for (const bool new_arguments : {false, true}) {
      Measure(stream, new_arguments ? "graph, new arguments" : "graph", step, [&] {
        for (int i = 0; i < kChain; i += step) Replay(stream, graph, new_arguments);
      });
    }
  }
}

// Forks before CUDA is touched. True in the first of the processes.
bool ForkOthers(int processes) {
  for (int i = 1; i < processes; ++i) {
    if (fork() == 0) return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  const int processes = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2 || processes < 1 || processes > 8) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const bool is_first = ForkOthers(processes);
  if (!is_first && std::freopen("/dev/null", "w", stdout) == nullptr) return 2;
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  Check(cudaFuncSetAttribute(SpinKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "allowing shared memory");
  for (int i = 0; i < 10 * kChain; ++i) Launch(stream, false);
  Check(cudaStreamSynchronize(stream), "warming up");
  MeasureAll(stream);
  std::fflush(stdout);
  int status = 0;
  bool good = true;
  while (is_first && wait(&status) > 0) good = good && status == 0;
  return good ? 0 : 2;
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) { return perigee::Main(argc, argv); }
