// Indices, masks and what stands between the parentheses of tl.load and tl.store.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "emit/triton/kernel_printer.hpp"
#include "support/text.hpp"

namespace kw::triton {

using namespace kernel_ir;

Text KernelPrinter::index_text(const Index& index) const {
  std::string out;
  Binding binding = Binding::kAtom;
  const bool constant_first = index.constant != 0 && !index.terms.empty() && index.terms[0].coefficient < 0;
  if (constant_first) out = std::to_string(index.constant);
  int parts = constant_first ? 1 : 0;
  for (const IndexTerm& term : index.terms) {
    if (is_fixed(term.axis) || term.coefficient == 0) continue;
    std::string text = axis_names_[term.axis];
    Binding part = Binding::kAtom;
    if (term.divisor != 1) text += fmt::format(" // {}", term.divisor);
    if (term.modulus != 0) text += fmt::format(" % {}", term.modulus);
    if (term.divisor != 1 || term.modulus != 0) part = Binding::kMultiply;
    const bool minus = term.coefficient < 0 && parts > 0;
    const int64_t coefficient = minus ? -term.coefficient : term.coefficient;
    if (coefficient != 1) {
      text = fmt::format("{} * {}", part == Binding::kAtom ? text : "(" + text + ")", coefficient);
      part = Binding::kMultiply;
    }
    out = parts == 0 ? text : fmt::format("{} {} {}", out, minus ? "-" : "+", text);
    binding = parts == 0 ? part : Binding::kAdd;
    ++parts;
  }
  if (parts == 0) return {std::to_string(index.constant), index.constant < 0 ? Binding::kUnary : Binding::kAtom, true};
  if (index.constant == 0 || constant_first) return {out, binding};
  return {fmt::format("{} {} {}", out, index.constant < 0 ? "-" : "+", std::abs(index.constant)), Binding::kAdd};
}

std::string KernelPrinter::mark_of(const std::string& text, const std::vector<bool>& axes, const std::string& buffer,
                                   bool is_index) {
  for (size_t at = 0; at < marks_.size(); ++at)
    if (marks_[at].is_index == is_index && marks_[at].text == text) return mark_text(at);
  marks_.push_back({text, axes, buffer, "", is_index});
  return mark_text(marks_.size() - 1);
}

std::string KernelPrinter::index_mark(const Index& index, const std::string& buffer) {
  const Text text = index_text(index);
  if (text.binding == Binding::kAtom) return text.text;
  std::vector<bool> axes(kernel_.axes.size(), false);
  for (const IndexTerm& term : index.terms) axes[term.axis] = true;
  return mark_of(text.text, axes, buffer, true);
}

std::string KernelPrinter::mask_mark(const std::vector<std::string>& terms, const std::vector<bool>& axes,
                                     const std::string& buffer) {
  if (terms.empty()) return "";
  std::vector<std::string> parts = terms;
  if (terms.size() > 1)
    for (std::string& part : parts) part = "(" + part + ")";
  return mark_of(join(parts, " & "), axes, buffer, false);
}

// Only the sides of a guard that the axes' extents do not already imply.
std::vector<std::string> KernelPrinter::guard_terms(const Access& access) const {
  std::vector<std::string> terms;
  for (const Guard& guard : access.guards) {
    const IndexRange range = range_of(guard.index, kernel_.axes);
    const Text index = index_text(guard.index);
    if (index.constant) {
      if (guard.index.constant < guard.lower || guard.index.constant >= guard.upper)
        terms.push_back("tl.full((), False, tl.int1)");
      continue;
    }
    const std::string text = wrap(index, Binding::kAdd);
    if (range.lowest < guard.lower) terms.push_back(fmt::format("{} >= {}", text, guard.lower));
    if (range.highest >= guard.upper) terms.push_back(fmt::format("{} < {}", text, guard.upper));
  }
  return terms;
}

std::vector<std::string> KernelPrinter::overhang_terms(const std::vector<bool>& axes) const {
  std::vector<std::string> terms;
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis] && is_dimension(axis) && overhangs(kernel_.axes[axis]))
      terms.push_back(fmt::format("{} < {}", axis_names_[axis], kernel_.axes[axis].extent));
  return terms;
}

std::string KernelPrinter::access_mask(const Access& access, const std::vector<bool>& axes,
                                       const std::string& condition) {
  std::vector<std::string> terms = overhang_terms(axes);
  for (std::string& term : guard_terms(access)) terms.push_back(std::move(term));
  // A condition may use what the scope computes, so it has no place among the masks at the scope's start.
  const std::string mask = mask_mark(terms, axes, kernel_.buffers[access.buffer].name);
  if (mask.empty() || condition.empty()) return mask + condition;
  return fmt::format("({}) & {}", mask, condition);
}

std::string KernelPrinter::pointer(const Access& access, const std::vector<bool>& axes, ExprId gathered) {
  const std::string& buffer = kernel_.buffers[access.buffer].name;
  const Index& index = access.index;
  // A mask may not have more dimensions than its pointers.
  std::vector<bool> indexed = gathered == kNoExpr ? std::vector<bool>(kernel_.axes.size(), false) : axes_[gathered];
  for (const IndexTerm& term : index.terms) indexed[term.axis] = indexed[term.axis] || term.coefficient != 0;
  std::string spread;
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis] && !indexed[axis] && is_dimension(axis)) spread += fmt::format(" + {} * 0", axis_names_[axis]);
  std::string out = buffer + "_ptr";
  const auto add = [&](const Index& part) {
    const std::string offset = index_mark(part, buffer);
    if (offset != "0") out += offset[0] == '-' ? " + (" + offset + ")" : " + " + offset;
  };
  const auto [of_program, of_lane] = split_index(index);
  add(of_program);
  if (gathered != kNoExpr) out += " + " + wrap(value_text(gathered), Binding::kAdd);
  add(of_lane);
  return out + spread;
}

// What is one number for the whole tile, and what varies in it. Added to the pointer one after the other, they leave
// the lanes' offsets small: rows of 65,535 columns take 96 registers a thread instead of 254.
std::pair<Index, Index> KernelPrinter::split_index(const Index& index) const {
  Index of_program, of_lane;
  for (const IndexTerm& term : index.terms)
    if (!is_fixed(term.axis) && term.coefficient != 0)
      (is_dimension(term.axis) ? of_lane : of_program).terms.push_back(term);
  (of_program.terms.empty() ? of_lane : of_program).constant = index.constant;
  return {of_program, of_lane};
}

std::string KernelPrinter::load_text(ExprId id) {
  const Expr& expr = kernel_.exprs[id];
  const Access& access = expr.access;
  const bool gathers = expr.kind == ExprKind::kGather, conditional = expr.operands.size() > 1;
  std::string options;
  const std::vector<bool>& axes = axes_[id];
  const std::string mask = access_mask(access, axes,
                                       conditional ? wrap(value_text(expr.operands[1]), Binding::kAtom) : "");
  if (!mask.empty()) {
    options += ", mask=" + mask;
    std::optional<double> other = padding_.load_other[id];
    if (conditional || !guard_terms(access).empty()) other = access.otherwise;
    if (other)
      options += ", other=" +
                 literal(expr.dtype, *other, static_cast<int64_t>(std::isfinite(*other) ? *other : 0)).text;
  }
  // Weights stay in the cache for the other programs, a row for the next pass over it; in its last pass it leaves
  // first.
  bool shared = program_count(kernel_) > 1, reduces = false;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (is_serial(kernel_.axes[axis])) reduces = true;
    else if (axes[axis] && blocks_of(kernel_.axes[axis]) > 1) shared = false;
  }
  if (reduces && (shared || loads_left_[id] > 1)) options += ", eviction_policy=\"evict_last\"";
  else if (loads_[id] > 1) options += ", eviction_policy=\"evict_first\"";
  if (loads_left_[id] > 0) --loads_left_[id];
  return fmt::format("tl.load({}{})", pointer(access, axes, gathers ? expr.operands[0] : kNoExpr), options);
}

std::string KernelPrinter::stored_text(const Store& store) {
  const Buffer& buffer = kernel_.buffers[store.access.buffer];
  ExprId value = store.value;
  const Expr& expr = kernel_.exprs[value];
  // tl.store casts to the pointer's type by itself; 8-bit floats are bytes to it.
  const bool casts = !is_eight_bit_float(buffer.dtype) && expr.kind == ExprKind::kOp && expr.op == ScalarOp::kCast &&
                     expr.dtype == buffer.dtype && is_floating(expr.dtype) &&
                     is_floating(kernel_.exprs[expr.operands[0]].dtype) &&
                     !is_eight_bit_float(kernel_.exprs[expr.operands[0]].dtype);
  if (!bound_[value] && casts) value = expr.operands[0];
  const Expr& stored = kernel_.exprs[value];
  if (stored.kind == ExprKind::kConstant)
    return typed(literal(stored.dtype, stored.number, stored.integer), stored.dtype);
  if (stored.kind == ExprKind::kIndex && !bound_[value]) return index_mark(stored.access.index, buffer.name);
  return value_text(value).text;
}

void KernelPrinter::store(int index) {
  const Store& store = kernel_.stores[index];
  const std::string text = stored_text(store);
  const std::vector<bool> axes = axes_of_access(kernel_, store.access);
  const std::string mask = access_mask(store.access, axes, "");
  line(fmt::format("tl.store({}, {}{})", pointer(store.access, axes, kNoExpr), text,
                   mask.empty() ? "" : ", mask=" + mask));
}

}  // namespace kw::triton
