// Server-sent events, as OpenAI-compatible servers stream them: "data: …" lines, an empty line after each event.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kw::llm {

class EventStream {
 public:
  // Takes the next bytes, cut anywhere, and calls `on_data` with the data of each event that is complete.
  void feed(std::string_view bytes, const std::function<void(const std::string& data)>& on_data);

  // Bytes of an event whose end has not come.
  const std::string& rest() const { return line_.empty() ? data_ : line_; }

 private:
  void take_line(const std::function<void(const std::string& data)>& on_data);
  std::string line_, data_;
  bool has_data_ = false, after_return_ = false;
};

}  // namespace kw::llm
