// The test's side of one rank's process (rank_server.h).
#ifndef PERIGEE_TESTS_DEVICE_RANK_PROCESS_H_
#define PERIGEE_TESTS_DEVICE_RANK_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/local/unix_socket.h"
#include "tests/device/rank_wire.h"

namespace perigee {

// What goes wrong with the process itself fails the test; replies then say UNKNOWN. Every wait is
// bounded.
class RankProcess {
 public:
  struct Answer {
    RankReply reply;
    std::vector<FileDescriptor> descriptors;

    bool ok() const { return reply.code == 0; }
    std::string text() const { return reply.text; }
  };

  // Forks; the process connects to the listener and then creates its backend, which it reports in
  // a first answer. `device` is for "cuda". This process must not have used CUDA. Null: failed.
  static std::unique_ptr<RankProcess> Fork(UnixListener& listener, const std::string& backend,
                                           int32_t device);
  ~RankProcess();  // kills what still runs
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void Send(const RankCommand& command, const std::vector<int>& descriptors = {});
  Answer Receive();
  Answer Do(const RankCommand& command) {
    Send(command);
    return Receive();
  }

  // SIGKILL, and its end; on return the kernel has taken the process apart.
  void Kill();
  // SIGSTOP, and that it stands still.
  void Stop();
  void Continue();
  // kQuit, and an end with status 0.
  void Quit();

 private:
  RankProcess(pid_t pid, UnixSocket socket) : pid_(pid), socket_(std::move(socket)) {}
  int Reap();

  pid_t pid_;  // -1: reaped
  UnixSocket socket_;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_RANK_PROCESS_H_
