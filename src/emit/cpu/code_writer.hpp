// Indented lines of C++.
#pragma once

#include <string>

namespace kw::cpu {

class CodeWriter {
 public:
  void line(const std::string& text) { text_ += (text[0] == '#' ? "" : std::string(2 * level_, ' ')) + text + "\n"; }

  void open(const std::string& head) {
    line(head.empty() ? "{" : head + " {");
    ++level_;
  }

  void close() {
    --level_;
    line("}");
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int level_ = 0;
};

}  // namespace kw::cpu
