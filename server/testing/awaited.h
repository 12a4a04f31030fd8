// What a call comes to, waited for by a test.
#ifndef PERIGEE_SERVER_TESTING_AWAITED_H_
#define PERIGEE_SERVER_TESTING_AWAITED_H_

#include <chrono>
#include <functional>
#include <future>
#include <memory>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace perigee {

// Result is an aggregate that begins with its status: CallResult or a Reply.
template <typename Result>
class Awaited {
 public:
  // To be called once, from any thread.
  std::function<void(const Result&)> done() {
    return [promise = promise_](const Result& result) { promise->set_value(result); };
  }
  // Blocks, for 20 s at most. Once.
  Result Get() {
    if (future_.wait_for(std::chrono::seconds(20)) == std::future_status::ready) {
      return future_.get();
    }
    ADD_FAILURE() << "a call was not answered";
    return {absl::DeadlineExceededError("not answered"), {}, {}};
  }

 private:
  std::shared_ptr<std::promise<Result>> promise_ = std::make_shared<std::promise<Result>>();
  std::future<Result> future_ = promise_->get_future();
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_TESTING_AWAITED_H_
