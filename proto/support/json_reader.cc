#include "proto/support/json_reader.h"

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

void AppendUtf8(uint32_t code, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

bool IsSurrogate(uint32_t code) { return code >= 0xd800 && code < 0xe000; }

// Bytes of the UTF-8 sequence that begins the text; 0 if none does. Overlong forms, surrogates and
// codes past 0x10ffff are none.
size_t Utf8Length(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  uint32_t code = first & (0xff >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  return code < kLeast[length] || code > 0x10ffff || IsSurrogate(code) ? 0 : length;
}

}  // namespace

void JsonReader::SkipSpace() {
  while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n' ||
                                   text_[place_] == '\r' || text_[place_] == '\t')) {
    ++place_;
  }
}

bool JsonReader::Take(char c) {
  SkipSpace();
  if (place_ >= text_.size() || text_[place_] != c) return false;
  ++place_;
  return true;
}

absl::Status JsonReader::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat("byte ", place_, ": ", message));
}

absl::Status JsonReader::Expected(absl::string_view what) const {
  return Error(absl::StrCat("expected ", what));
}

absl::Status JsonReader::ReadObject(
    const std::function<absl::Status(const std::string& key)>& on_member) {
  if (!Take('{')) return Expected("{");
  if (Take('}')) return absl::OkStatus();
  do {
    absl::StatusOr<std::string> key = ReadString();
    if (!key.ok()) return key.status();
    if (!Take(':')) return Expected(":");
    if (absl::Status status = on_member(*key); !status.ok()) return status;
  } while (Take(','));
  return Take('}') ? absl::OkStatus() : Expected(", or }");
}

absl::Status JsonReader::ReadArray(const std::function<absl::Status()>& on_element) {
  if (!Take('[')) return Expected("[");
  if (Take(']')) return absl::OkStatus();
  do {
    if (absl::Status status = on_element(); !status.ok()) return status;
  } while (Take(','));
  return Take(']') ? absl::OkStatus() : Expected(", or ]");
}

absl::StatusOr<std::string> JsonReader::ReadString() {
  if (!Take('"')) return Expected("a string");
  std::string result;
  while (place_ < text_.size()) {
    const char c = text_[place_];
    if (c == '"') {
      ++place_;
      return result;
    }
    if (c == '\\') {
      ++place_;
      if (absl::Status status = ReadEscape(result); !status.ok()) return status;
      continue;
    }
    const size_t length =
        static_cast<unsigned char>(c) < 0x20 ? 0 : Utf8Length(text_.substr(place_));
    if (length == 0) return Expected("UTF-8 text in a string");
    result.append(text_.data() + place_, length);
    place_ += length;
  }
  return Expected("the end of a string");
}

absl::Status JsonReader::ReadEscape(std::string& out) {
  constexpr absl::string_view kEscapes = "\"\\/bfnrtu";
  constexpr absl::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const size_t index =
      place_ < text_.size() ? kEscapes.find(text_[place_]) : absl::string_view::npos;
  if (index == absl::string_view::npos) return Expected("an escape sequence");
  ++place_;
  if (index < kMeanings.size()) {
    out += kMeanings[index];
    return absl::OkStatus();
  }
  absl::StatusOr<uint32_t> code = ReadHex4();
  if (!code.ok()) return code.status();
  if (IsSurrogate(*code)) {
    if (*code >= 0xdc00 || text_.substr(place_, 2) != "\\u") return Expected("a surrogate pair");
    place_ += 2;
    absl::StatusOr<uint32_t> low = ReadHex4();
    if (!low.ok()) return low.status();
    if (*low < 0xdc00 || *low >= 0xe000) return Expected("a surrogate pair");
    *code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
  }
  AppendUtf8(*code, out);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> JsonReader::ReadHex4() {
  uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++place_) {
    const char c = place_ < text_.size() ? text_[place_] : '\0';
    const uint32_t digit = c >= '0' && c <= '9'   ? c - '0'
                           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                  : 16;
    if (digit == 16) return Expected("four hexadecimal digits");
    code = code << 4 | digit;
  }
  return code;
}

absl::StatusOr<int64_t> JsonReader::ReadNonNegative() {
  SkipSpace();
  const size_t begin = place_;
  int64_t value = 0;
  for (; place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9'; ++place_) {
    if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
        __builtin_add_overflow(value, int64_t{text_[place_] - '0'}, &value)) {
      return Expected("an integer below 2^63");
    }
  }
  const size_t digits = place_ - begin;
  if (digits == 0 || (digits > 1 && text_[begin] == '0')) return Expected("an integer, 0 or more");
  return value;
}

absl::Status JsonReader::ReadEnd() {
  SkipSpace();
  return place_ == text_.size() ? absl::OkStatus() : Expected("nothing more");
}

}  // namespace perigee
