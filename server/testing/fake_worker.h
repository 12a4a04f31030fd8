// A worker as the control plane sees it, without gRPC: holds both streams and answers commands from
// a thread of its own.
#ifndef PERIGEE_SERVER_TESTING_FAKE_WORKER_H_
#define PERIGEE_SERVER_TESTING_FAKE_WORKER_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "server/control_plane.h"

namespace perigee {

// Thread-safe.
class FakeWorker {
 public:
  // Registers and opens both streams. `life` makes the incarnation.
  FakeWorker(ControlPlane& control, int index, int life = 1);
  ~FakeWorker();  // Stop
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;

  static v1::Worker Describe(int index, int life);
  // The answer to a command, as a worker gives it.
  static v1::WorkerReport AnswerTo(const v1::WorkerCommand& command, const absl::Status& status);
  static v1::WorkerReport Admission(const v1::WorkerCommand& command);
  // Does not answer ExecuteProgram until the generation is aborted, as a rank that waits for
  // others.
  void HoldPrograms();
  // Its process is killed: both connections break and nothing is answered any more.
  void Kill();
  // Its transport takes no more commands: they wait on the coordinator's side.
  void StallDelivery();
  // Only the command stream breaks.
  void BreakCommands();
  // Opens another command stream, which delivers.
  void ReopenCommands();
  // Blocks until `count` commands of the kind have come, at most 20 s.
  bool AwaitCommands(v1::WorkerCommand::CommandCase kind, size_t count);
  size_t CountCommands(v1::WorkerCommand::CommandCase kind) const;
  absl::Status Heartbeat(uint64_t number) const;
  void Stop();

 private:
  class Sink;
  void OpenCommands();
  void Take(const v1::WorkerCommand& command);
  std::vector<v1::WorkerCommand> TakeUnsent();
  size_t CountSeen(v1::WorkerCommand::CommandCase kind) const;  // with the mutex held
  void Run();
  void Answer(const v1::WorkerCommand& command, const absl::Status& status);

  ControlPlane& control_;
  const v1::Worker worker_;
  const std::shared_ptr<Sink> sink_;
  StreamId lease_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  StreamId commands_ = 0;  // 0: not open
  bool stalled_ = false;
  std::vector<v1::WorkerCommand> undelivered_;
  std::deque<v1::WorkerCommand> waiting_;
  std::vector<v1::WorkerCommand> seen_;
  std::vector<v1::WorkerCommand> held_;
  bool hold_programs_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_TESTING_FAKE_WORKER_H_
