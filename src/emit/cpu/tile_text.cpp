#include "emit/cpu/tile_text.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "kernel/scalar_values.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::cpu {

using kernel::ScalarOp;
using tile::Index;
using tile::Symbol;
using tile::Value;
using namespace precedence;

namespace {

Text product(const Text& left, const Text& right) {
  return {within(left, kMultiply) + " * " + within(right, kMultiply + 1), kMultiply};
}

Text number(int64_t value) { return {std::to_string(value), value < 0 ? kUnary : kPrimary}; }

// Does it yield one of its operands, or what every narrower type has too?
bool is_exact(ScalarOp op) {
  switch (op) {
    case ScalarOp::kSelect:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kSign:
    case ScalarOp::kMinimum:
    case ScalarOp::kMaximum:
    case ScalarOp::kFmin:
    case ScalarOp::kFmax: return true;
    default: return kernel::is_predicate(op);
  }
}

constexpr size_t kColumns = 120;

// Where the line is broken best: before the last operator that fits; 0 where none is.
size_t break_of(const std::string& line, size_t indent) {
  size_t best = 0;
  for (const std::string_view mark : {" ? ", " : ", " + ", " - ", " * ", " && ", " || ", " = ", " reduction("}) {
    const size_t found = line.rfind(mark, kColumns - 2);
    if (found != std::string::npos && found > indent + kColumns / 4 && found > best) best = found;
  }
  return best;
}

}  // namespace

std::string in_columns(const std::string& text) {
  std::string result;
  for (std::string line : split_lines(text)) {
    const bool directive = line.starts_with("#");
    const size_t indent = line.find_first_not_of(' ');
    while (line.size() > kColumns && line.compare(indent, 2, "//") != 0) {
      const size_t at = break_of(line, indent);
      if (at == 0) break;
      result += line.substr(0, at) + (directive ? " \\\n" : "\n");
      line = std::string(indent + 4, ' ') + line.substr(at + 1);
    }
    result += line + "\n";
  }
  return result;
}

TileText::TileText(const tile::Program& program, const lower::LoopPlan& plan, HelperSet& helpers)
    : program_(program), plan_(plan), helpers_(helpers), ranges_(tile::ranges_of(program)) {
  std::map<std::string, std::string> loops;  // one after the other may have one name
  for (const tile::Buffer& buffer : program.buffers) buffers_.push_back(names_.fresh(buffer.name, "_tensor"));
  for (const tile::SymbolInfo& symbol : program.symbols) {
    std::string& name = loops[symbol.name];
    if (name.empty()) name = symbol.threads == 1 ? "threads" : names_.fresh(symbol.name);
    symbols_.push_back(name);
  }
  for (const tile::ValueInfo& value : program.values) values_.push_back(names_.fresh(value.name));
}

DType TileText::held(Value value) const {
  const DType dtype = type(value).dtype;
  return is_narrow_float(dtype) && !place(value).packed ? DType::f32 : dtype;
}

// --- Indices ---

Text TileText::factor(const kernel::IndexFactor& factor) const {
  using FactorKind = kernel::IndexFactor::Kind;
  if (factor.kind == FactorKind::kSymbol) return {symbol(factor.symbol), kPrimary};
  if (factor.kind == FactorKind::kMinimum)
    return {"std::min<int64_t>(" + index(*factor.dividend).text + ", " + index(*factor.divisor).text + ")", kPrimary};
  const bool quotient = factor.kind == FactorKind::kQuotient;
  const Text dividend = index(*factor.dividend), divisor = index(*factor.divisor);
  // C++ rounds to zero, indices down: the same where nothing is negative.
  if (kernel::range_of(*factor.dividend, ranges_).low >= 0)
    return {within(dividend, kMultiply) + (quotient ? " / " : " % ") + within(divisor, kMultiply + 1), kMultiply};
  const std::string helper = quotient ? "integer_floor_quotient" : "integer_modulo";
  helpers_.insert(helper);
  return {helper + "<int64_t>(" + dividend.text + ", " + divisor.text + ")", kPrimary};
}

Text TileText::term(const kernel::IndexTerm& term) const {
  Text result = factor(term.factors[0]);
  for (size_t i = 1; i < term.factors.size(); ++i) result = product(result, factor(term.factors[i]));
  const int64_t size = std::abs(term.coefficient);
  return size == 1 ? result : product(result, number(size));
}

Text TileText::index(const Index& index) const {
  Text result{"", kPrimary};
  const auto add = [&](const Text& part, bool negative) {
    if (result.text.empty()) {
      result = negative ? Text{"-" + within(part, kUnary), kUnary} : part;
      return;
    }
    result = {result.text + (negative ? " - " : " + ") + within(part, kMultiply), kAdd};
  };
  for (const kernel::IndexTerm& one : index.terms)
    if (one.coefficient > 0) add(term(one), false);
  const bool starts = result.text.empty() && index.constant > 0;  // 150 - start
  if (starts) result = number(index.constant);
  for (const kernel::IndexTerm& one : index.terms)
    if (one.coefficient < 0) add(term(one), true);
  if (result.text.empty()) return number(index.constant);
  if (index.constant != 0 && !starts) add(number(std::abs(index.constant)), index.constant < 0);
  return result;
}

// --- Tiles ---

int64_t TileText::stride(Value value, Symbol lane) const { return lower::stride_of(program_, place(value), lane); }

int64_t TileText::elements(Value value) const {
  int64_t count = 1;
  for (Symbol lane : place(value).lanes) count *= width(lane);
  return count;
}

std::string TileText::element_index(Value value, const LanePositions& positions) const {
  std::vector<std::string> parts;
  for (Symbol lane : place(value).lanes) {
    const auto found = positions.find(lane);
    const std::string at = found == positions.end() ? symbol(lane) : found->second;
    if (at == "0") continue;
    const bool plain = at.find(' ') == std::string::npos;
    const int64_t step = stride(value, lane);
    parts.push_back(step == 1 ? at : (plain ? at : "(" + at + ")") + " * " + std::to_string(step));
  }
  return join(parts, " + ");
}

Text TileText::element(Value value, const LanePositions& positions) const {
  if (!is_array(value)) return {name(value), kPrimary};
  const std::string at = element_index(value, positions);
  return {name(value) + "[" + (at.empty() ? "0" : at) + "]", kPrimary};
}

Text TileText::constant(const tile::Instruction& constant) const {
  const DType dtype = type(constant.results[0]).dtype;
  const double number = kernel::is_real(dtype) ? kernel::round_to(dtype, constant.number) : 0.0;
  return constant_text(held(constant.results[0]), number, constant.integer, helpers_);
}

// --- Operations ---

Text TileText::rounded(const Text& value, DType dtype) const {
  if (!is_narrow_float(dtype)) return value;
  return cast_text(cast_text(value, DType::f32, dtype, helpers_), dtype, DType::f32, helpers_);
}

Text TileText::operation(ScalarOp op, DType dtype, const std::vector<Text>& operands,
                         const std::vector<DType>& types) const {
  std::vector<DType> held;
  for (DType one : types) held.push_back(is_narrow_float(one) ? DType::f32 : one);
  return operation(op, dtype, operands, types, held);
}

Text TileText::operation(const tile::Instruction& one, const std::vector<Text>& operands) const {
  const Value result = one.results[0];
  std::vector<DType> types, held;
  for (Value operand : one.operands) {
    types.push_back(type(operand).dtype);
    held.push_back(this->held(operand));
  }
  if (!place(result).packed) return operation(one.op, type(result).dtype, operands, types, held);
  return op_text(one.op, type(result).dtype, operands, held, helpers_);  // a choice, or a cast
}

Text TileText::operation(ScalarOp op, DType dtype, const std::vector<Text>& operands, const std::vector<DType>& types,
                         const std::vector<DType>& held) const {
  if (op == ScalarOp::kRoundTf32) {
    helpers_.insert("round_to_tf32");
    return {"round_to_tf32(" + operands[0].text + ")", kPrimary};
  }
  const Text result = op_text(op, is_narrow_float(dtype) ? DType::f32 : dtype, operands, held, helpers_);
  const bool same = op == ScalarOp::kCast && types[0] == dtype;
  return is_exact(op) || same ? result : rounded(result, dtype);
}

std::string head_of(const TileText& text, const lower::LoopStep& step, const Text& end) {
  const tile::Instruction& loop = *step.instruction;
  const std::string& name = text.symbol(loop.symbol);
  const Text begin = text.index(loop.begin);
  if (!loop.reversed)
    return fmt::format("for ({4} {0} = {1}; {0} < {2}; {3})", name, begin.text, within(end, precedence::kAdd),
                       loop.step == 1 ? "++" + name : fmt::format("{} += {}", name, loop.step),
                       step.is_short ? "int32_t" : "int64_t");
  if (loop.step == 1) return fmt::format("for (int64_t {0} = {1}; {0}-- > {2};)", name, end.text, begin.text);
  const Index last = loop.begin + (tile::iterations_of(text.program(), loop) - Index(1)) * Index(loop.step);
  return fmt::format("for (int64_t {0} = {1}; {0} >= {2}; {0} -= {3})", name, text.index(last).text, begin.text,
                     loop.step);
}

}  // namespace kw::cpu
