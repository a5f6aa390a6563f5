// Dots, folds and scans of the interpreter, on plain numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernel/scalar_values.hpp"
#include "tile/program.hpp"

namespace kw::tile {

// Every operand's elements that one result is made of, in order: elements[i] of operand o is
// operands[o]->…[base + steps[i]].
struct Line {
  std::span<const kernel::Numbers* const> operands;
  int64_t base = 0;
  std::span<const int64_t> steps;
  int64_t size() const { return static_cast<int64_t>(steps.size()); }
  kernel::Number at(DType dtype, size_t operand, int64_t i) const;
};

// The fold of a line, not rounded; with `rounds`, every step of a simple fold is.
kernel::Number fold_line(ReduceOp reduce, DType dtype, const Line& line, bool rounds);
// What a scan leaves at every element of the line. `reversed` walks from its end; `before`, if any, is what the walk
// met before.
void scan_line(ReduceOp reduce, DType dtype, const Line& line, bool reversed, bool rounds, const kernel::Number* before,
               std::vector<kernel::Number>& results);
// The same of products in the order of a network (ScanWay::kNetwork).
void network_line(DType dtype, const Line& line, bool rounds, std::vector<kernel::Number>& results);
// The same of one that moves elements: sorts, extremes with an operand that comes along (of equals the one with the
// largest), and the first.
bool moves_elements(ReduceOp reduce, size_t operands);
void source_line(ReduceOp reduce, DType dtype, const Line& line, bool reversed, std::vector<int64_t>& sources);
// Does the extreme that was met before, with what came along, stay where this element is the line's?
bool stands_after(ReduceOp reduce, DType dtype, const Line& line, int64_t i, const kernel::Number* before);

// sum + Σ a[i] · b[i] over the places of a and b, which are as many.
struct DotLine {
  int64_t a_base = 0, b_base = 0;
  std::span<const int64_t> a_steps, b_steps;
};
double dot_in_double(double sum, const std::vector<double>& a, const std::vector<double>& b, const DotLine& line);
// Products and sums rounded to f32; products of 16 bits and fewer are exact in it.
double dot_in_float(double sum, const std::vector<double>& a, const std::vector<double>& b, const DotLine& line);
int64_t dot_of_wholes(int64_t sum, const std::vector<int64_t>& a, const std::vector<int64_t>& b, const DotLine& line);

}  // namespace kw::tile
