// What must hold of programs and attachments of one group, whatever happens: no sequence is used
// twice, ids ascend, and the two exclude each other. For the model test.
#ifndef PERIGEE_SERVER_GROUPS_SEQUENCE_CHECK_H_
#define PERIGEE_SERVER_GROUPS_SEQUENCE_CHECK_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "server/groups/group_events.h"

namespace perigee {

class SequenceCheck {
 public:
  void Sent(const SendCommand& send) {
    const v1::WorkerCommand& command = send.command;
    if (command.has_allocate_buffer()) {  // perhaps a new one under an old name
      last_used_.erase({command.allocate_buffer().buffer().name(), command.generation()});
    }
    if (command.has_execute_program()) SentProgram(send);
    if (command.has_serve_client()) SentClient(send);
  }
  // The command's rank says which sequence it has used last; 0: none.
  void Answered(const SendCommand& send, uint64_t last_sequence) {
    const v1::WorkerCommand& command = send.command;
    const std::string& buffer = command.has_execute_program() ? command.execute_program().buffer()
                                                              : command.serve_client().buffer();
    uint64_t& used = last_used_[{buffer, command.generation()}];
    used = std::max(used, last_sequence);
    serving_.erase(send.token);
    executing_.erase(send.token);
  }
  void GenerationBegan() { running_ = 0; }
  void GenerationEnded() {
    serving_.clear();
    executing_.clear();
  }
  uint64_t last_attachment() const { return last_attachment_; }

 private:
  void ExpectUnused(const std::string& buffer, const SendCommand& send, uint64_t first_sequence) {
    const auto used = last_used_.find({buffer, send.command.generation()});
    if (used == last_used_.end()) return;
    EXPECT_GT(first_sequence, used->second) << "a sequence was used twice";
  }
  void SentProgram(const SendCommand& send) {
    const auto& execute = send.command.execute_program();
    if (running_ != execute.program_id()) {
      ExpectUnused(execute.buffer(), send, execute.first_sequence());
    }
    EXPECT_GE(execute.program_id(), running_);
    EXPECT_TRUE(serving_.empty()) << "a program beside an attachment";
    running_ = execute.program_id();
    executing_.insert(send.token);
  }
  void SentClient(const SendCommand& send) {
    const auto& serve = send.command.serve_client();
    EXPECT_GT(serve.attachment_id(), last_attachment_);
    EXPECT_TRUE(executing_.empty()) << "an attachment beside a program";
    last_attachment_ = serve.attachment_id();
    const bool is_first = std::none_of(serving_.begin(), serving_.end(), [&](const auto& other) {
      return other.second == serve.buffer();
    });
    if (is_first) ExpectUnused(serve.buffer(), send, serve.first_sequence());
    serving_[send.token] = serve.buffer();
  }

  uint64_t running_ = 0;
  uint64_t last_attachment_ = 0;
  std::map<std::pair<std::string, uint64_t>, uint64_t> last_used_;  // by buffer and generation
  std::map<CommandToken, std::string> serving_;  // their buffers; of the generation that lives
  std::set<CommandToken> executing_;             // likewise
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_SEQUENCE_CHECK_H_
