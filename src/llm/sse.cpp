#include "llm/sse.hpp"

#include <utility>

namespace kw::llm {

void EventStream::feed(std::string_view bytes, const std::function<void(const std::string& data)>& on_data) {
  for (const char byte : bytes) {
    // Lines end in \n, \r\n or \r.
    const bool second_half = byte == '\n' && after_return_;
    after_return_ = byte == '\r';
    if (second_half) continue;
    if (byte == '\n' || byte == '\r') take_line(on_data);
    else line_ += byte;
  }
}

void EventStream::take_line(const std::function<void(const std::string& data)>& on_data) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  std::string_view rest = line;
  if (!rest.starts_with("data:")) return;  // comments that keep the connection alive, event names, ids
  rest.remove_prefix(5);
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += rest;
  has_data_ = true;
}

}  // namespace kw::llm
