// Which of a program's tensors are read, in which way, and when nothing reads them any more.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "emit/program.hpp"

namespace kw {

constexpr int64_t kWorthFreeing = 1 << 20;  // bytes; smaller tensors may live until the function returns

struct TensorUses {
  std::vector<std::string> made;  // by steps, in their order
  std::map<std::string, TensorType> types;
  std::set<std::string> used;
  std::set<std::string> strides_matter;
  // Those made here, and views of them, which begin where the plan says.
  std::set<std::string> aligned;
  // Step → large tensors that it reads last, where memory is asked for behind it. Outputs are not among them.
  std::map<size_t, std::vector<std::string>> dying;

  bool is_large(const std::string& name) const { return types.at(name).bytes() >= kWorthFreeing; }
};

// `in_place`: new values that are made where a buffer lies. `aligned`: tensors that are there before.
TensorUses tensor_uses(const Graph& graph, const Program& program, const std::map<std::string, std::string>& in_place,
                       std::set<std::string> aligned);

}  // namespace kw
