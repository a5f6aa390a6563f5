// The language in which a language model writes kernels for a target: what it is told, and how its kernels are known.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace kw {

// What a source lacks; an empty code: nothing.
struct KernelFault {
  std::string code, message;
};

class KernelLanguage {
 public:
  virtual ~KernelLanguage() = default;
  virtual std::string_view name() const = 0;     // "Triton", "C++"
  virtual std::string_view form() const = 0;     // how the file is to look, for a prompt
  virtual std::string_view example() const = 0;  // a problem and its file, for a prompt
  virtual std::string_view mark() const = 0;     // stands in every kernel's source
  // A Python function that the form promises, and the text that defines it; empty: there is none.
  virtual std::string_view helper() const { return ""; }
  virtual std::string_view helper_text() const { return ""; }
  // Does the source have a kernel, and launch it? `facts`: what the worker's parser says of it (docs/llm.md).
  virtual KernelFault check(const nlohmann::ordered_json& facts, const std::string& source) const = 0;
  // The part of a candidate that a model is to write, as an example; empty where it is in another form.
  virtual std::string own_part(const std::string& candidate) const = 0;
};

}  // namespace kw
