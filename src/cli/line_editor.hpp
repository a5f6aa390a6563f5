// What a person types: one input at a time, of one line or many, with editing and history on a terminal, as it stands
// from a file or a pipe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace kw::cli {

struct Input {
  enum class Kind { kText, kInterrupted /* Ctrl-C at the prompt */, kEnd /* Ctrl-D, or the end of the file */ };
  Kind kind = Kind::kText;
  std::string text;  // kInterrupted: what was given up
};

class LineEditor {
 public:
  virtual ~LineEditor() = default;
  virtual Input read() = 0;
  virtual bool is_terminal() const = 0;
};

struct EditorOptions {
  std::string prompt;                                                            // on a terminal only
  std::string history;                                                           // file; empty: none
  std::function<bool(const std::string& text)> is_complete;                      // else Enter begins another line
  std::function<std::vector<std::string>(const std::string& line)> completions;  // of its last word, for Tab
};

// libedit where standard input and output are a terminal, plain lines otherwise.
std::unique_ptr<LineEditor> open_editor(EditorOptions options);

}  // namespace kw::cli
