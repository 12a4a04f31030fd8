// What the tests of whole clusters share: a scratch directory whose users can be found again, and a
// cluster as `perigee up` makes it.
#ifndef PERIGEE_TESTS_INTEGRATION_CLUSTER_FIXTURE_H_
#define PERIGEE_TESTS_INTEGRATION_CLUSTER_FIXTURE_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "google/protobuf/struct.pb.h"
#include "gtest/gtest.h"
#include "tests/testing/process.h"

namespace perigee {

// How long a step of a healthy cluster may take on a busy machine.
inline constexpr absl::Duration kStepTimeout = absl::Seconds(60);

// The layer that the repository carries: 8 ranks of 256 tokens, 64 experts.
inline constexpr const char* kLayerPath = "tests/testdata/moe_layer_e64_k8.safetensors";

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest();
  ~ClusterTest() override;

  // Runs `perigee` with TMPDIR set to the scratch directory.
  std::unique_ptr<Process> Perigee(const std::vector<std::string>& args,
                                   const std::vector<std::string>& environment = {}) const;
  // The same, to its end; the status is -1 where that did not come in time.
  struct Result {
    int status = -1;
    std::string out;
    std::string err;
  };
  Result RunPerigee(const std::vector<std::string>& args,
                    const std::vector<std::string>& environment = {}) const;

  // Starts a cluster and waits until it is ready; cluster_, address_ and worker_pids_ are set.
  void StartCluster(int ranks, const std::vector<std::string>& more = {});

  // Processes started through Perigee and all their descendants.
  std::vector<pid_t> Processes() const;
  // Of `perigee run` or `up`: the process of worker w{rank}, awaited; -1 if it does not come.
  pid_t AwaitWorker(int rank) const;
  // Waits until no process and no file of any cluster is left, and says what is otherwise.
  ::testing::AssertionResult NothingLeft(absl::Duration timeout) const;

  // Unique to the test, short, below the system's temporary directory.
  const std::string& scratch() const { return scratch_; }

  std::unique_ptr<Process> cluster_;
  std::string address_;
  std::vector<pid_t> worker_pids_;

 private:
  std::string scratch_;
  std::string mark_;
};

// The lines of a text that are not empty.
std::vector<std::string> Lines(const std::string& text);

// A JSON object; fails the test where the text is none.
google::protobuf::Struct ParseJson(const std::string& text);

}  // namespace perigee

#endif  // PERIGEE_TESTS_INTEGRATION_CLUSTER_FIXTURE_H_
