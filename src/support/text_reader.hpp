// Reads a text form word by word, and says where it stands when something is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kw {

class TextReader {
 public:
  // `what` is named in errors: "tile program", "kernel".
  TextReader(std::string_view text, std::string what) : text_(text), what_(std::move(what)) {}

  bool at_end();
  // The next character that is not white space or of a comment (`#` to the end of the line); 0 at the end.
  char peek();
  // Is the next word or mark this one? A word ends where its letters, digits and underscores do.
  bool next_is(std::string_view token);
  bool accept(std::string_view token);
  void expect(std::string_view token);

  bool next_is_name();
  std::string name();    // an identifier
  int64_t integer();     // with an optional sign
  double number();       // also "inf", "-inf", "nan", "0x1p-12"
  std::string quoted();  // "…" with \" and \\ escapes

  size_t position();  // of the next token, for fail_at
  // What was read from there to here, without the white space that follows.
  std::string_view between(size_t position) const { return text_.substr(position, at_ - position); }
  // Throws kUser: what is wrong, the line's text, and "line L, column C".
  [[noreturn]] void fail(const std::string& message);
  [[noreturn]] void fail_at(size_t position, const std::string& message) const;

 private:
  void skip_space();

  std::string_view text_;
  std::string what_;
  size_t at_ = 0;
};

}  // namespace kw
