// How one scan goes on: what it keeps from point to point, and the statements that take the next point in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emit/cpu/cpp_text.hpp"
#include "emit/cpu/loop_nest.hpp"
#include "emit/cpu/names.hpp"
#include "emit/kernel_ir.hpp"

namespace kw::cpu {

struct Carry {
  DType dtype = DType::f64;
  std::string element;  // the variable, or the element of its array that belongs to a column
  std::vector<std::string> declaration;
};

// One for each component: the running value, and for extremes with positions where it stands. Arrays of `count` with an
// element at `position`, or variables where count is empty.
std::vector<Carry> make_carries(const kernel_ir::Kernel& kernel, kernel_ir::ExprId scan, const std::string& count,
                                const std::string& position, Names& names);

// `operands`: their text, cheap to repeat where reads_operand_twice().
std::vector<std::string> scan_step(const kernel_ir::Kernel& kernel, kernel_ir::ExprId scan,
                                   const std::vector<Carry>& carries, const std::vector<Text>& operands, Names& names,
                                   HelperSet& helpers);

// An array over what a program scans at a time, a piece of some rows: how it is declared, an element's text, and that
// of where the row's elements begin.
int64_t elements_at_a_time(const kernel_ir::Kernel& kernel, const LoopNest& nest);
struct PieceArray {
  std::vector<std::string> declaration;
  std::string element, start;
};
PieceArray make_piece_array(DType dtype, const std::string& name, int64_t elements, const std::string& count,
                            const std::string& row_start, const std::string& position);

// Where the row of a load begins, if it can be sorted from where it lies.
std::optional<kernel_ir::Access> row_in_memory(const kernel_ir::Kernel& kernel, const LoopNest& nest,
                                               kernel_ir::ExprId load);

// The call that sorts one row of `count` elements; `sorted` and `places` are where its results begin, empty where
// nothing reads them.
std::string sort_call(const kernel_ir::Kernel& kernel, kernel_ir::ExprId sort, const std::string& values,
                      const std::string& count, const std::string& sorted, const std::string& places);

// The scans among `reached`, one sibling of each, in groups that need only what is scanned in groups before theirs.
std::vector<std::vector<kernel_ir::ExprId>> scan_levels(const kernel_ir::Kernel& kernel,
                                                        const std::vector<bool>& reached);

}  // namespace kw::cpu
