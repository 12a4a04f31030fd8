#include "client/cli/run/progress.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr absl::Duration kTerminalInterval = absl::Milliseconds(200);
constexpr absl::Duration kLogInterval = absl::Seconds(3);

}  // namespace

RunProgress::RunProgress(int32_t iterations, bool terminal, const Clock& clock,
                         std::function<void(const std::string&)> write)
    : iterations_(iterations),
      terminal_(terminal),
      clock_(clock),
      write_(std::move(write)),
      last_(clock.Monotonic()) {}

void RunProgress::Update(int32_t iterations_done) {
  std::lock_guard lock(mutex_);
  const absl::Duration now = clock_.Monotonic();
  if (now - last_ < (terminal_ ? kTerminalInterval : kLogInterval)) return;
  last_ = now;
  const std::string text = absl::StrCat("iteration ", iterations_done, " of ", iterations_);
  line_open_ = terminal_;
  write_(terminal_ ? absl::StrCat("\r", text) : absl::StrCat(text, "\n"));
}

void RunProgress::Message(const std::string& line) {
  std::lock_guard lock(mutex_);
  ClearLine();
  write_(absl::StrCat(line, "\n"));
}

void RunProgress::ClearLine() {
  if (line_open_) write_("\r\033[K");
  line_open_ = false;
}

}  // namespace perigee
