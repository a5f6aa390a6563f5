#include "support/stamp.hpp"

#include "support/hash.hpp"

namespace kw {

namespace {

constexpr std::string_view kStamp = "# Unedited while the SHA-256 of the other lines begins with ";
constexpr size_t kStampDigits = 16;

std::string digest_of(std::string_view text) { return sha256_hex(text).substr(0, kStampDigits); }

}  // namespace

std::string stamped(const std::string& source) {
  const size_t end = source.find('\n') + 1;  // 0 where there is no line: the stamp is then the first
  return source.substr(0, end) + std::string(kStamp) + digest_of(source) + "\n" + source.substr(end);
}

bool is_unedited(std::string_view content) {
  const size_t begin = content.find('\n') + 1, end = content.find('\n', begin);
  if (end == std::string_view::npos) return false;
  const std::string_view line = content.substr(begin, end - begin);
  if (!line.starts_with(kStamp)) return false;
  return line.substr(kStamp.size()) ==
         digest_of(std::string(content.substr(0, begin)) + std::string(content.substr(end + 1)));
}

}  // namespace kw
