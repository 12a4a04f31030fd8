// A strict JSON reader that pulls values one by one, for documents of a known form from anybody:
// nothing is built that the caller does not ask for, and nesting is as deep as the caller's code.
#ifndef PERIGEE_PROTO_SUPPORT_JSON_READER_H_
#define PERIGEE_PROTO_SUPPORT_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace perigee {

// Every function reads one value at the present place, white space before it included, and leaves
// the place behind it. INVALID_ARGUMENT names the byte and what was expected there; after an error
// the place is undefined. Borrows the text.
class JsonReader {
 public:
  explicit JsonReader(absl::string_view text) : text_(text) {}

  // {"key": value, ...}. on_member reads the value.
  absl::Status ReadObject(const std::function<absl::Status(const std::string& key)>& on_member);
  // [value, ...]. on_element reads the value.
  absl::Status ReadArray(const std::function<absl::Status()>& on_element);
  // Valid UTF-8, escapes resolved.
  absl::StatusOr<std::string> ReadString();
  // An integer in [0, 2^63), written without fraction or exponent.
  absl::StatusOr<int64_t> ReadNonNegative();
  // Nothing but white space may follow.
  absl::Status ReadEnd();

  // INVALID_ARGUMENT "byte 17: MESSAGE".
  absl::Status Error(absl::string_view message) const;

 private:
  void SkipSpace();
  // Takes `c` if it comes next, after white space.
  bool Take(char c);
  absl::Status Expected(absl::string_view what) const;
  absl::Status ReadEscape(std::string& out);
  absl::StatusOr<uint32_t> ReadHex4();

  absl::string_view text_;
  size_t place_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_JSON_READER_H_
