#include "toy/printer.hpp"

#include <fmt/format.h>

#include <map>

#include "emit/python_text.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::toy {

using kernel::ReduceOp;
using kernel::ScalarOp;
using tile::Access;
using tile::Index;
using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Symbol;
using tile::Value;

namespace {

const std::map<ScalarOp, std::string_view>& operations() {
  static const std::map<ScalarOp, std::string_view> table = {{ScalarOp::kAdd, "({} + {})"},
                                                             {ScalarOp::kSub, "({} - {})"},
                                                             {ScalarOp::kMul, "({} * {})"},
                                                             {ScalarOp::kMaximum, "max({}, {})"},
                                                             {ScalarOp::kNeg, "(-{})"},
                                                             {ScalarOp::kSelect, "({1} if {0} else {2})"},
                                                             {ScalarOp::kLess, "({} < {})"},
                                                             {ScalarOp::kGreaterEqual, "({} >= {})"},
                                                             {ScalarOp::kLogicalAnd, "({} and {})"}};
  return table;
}

// A tile is a dictionary from places along its lanes to numbers; one without lanes is a number.
class ProgramText {
 public:
  explicit ProgramText(const tile::Program& program) : program_(program) {}

  std::string text() {
    std::vector<std::string> names;
    for (const tile::Buffer& buffer : program_.buffers) names.push_back(buffer.name);
    out_ = "def " + program_.name + "(" + join(names, ", ") + "):\n";
    for (const tile::Buffer& buffer : program_.buffers)
      out_ += fmt::format("    {0} = {0}.as_strided(({1},), (1,))\n", buffer.name, index(buffer.shape.at(0)));
    print(program_.body, "    ");
    return std::move(out_);
  }

 private:
  void print(const std::vector<Instruction>& body, const std::string& indent) {
    for (const Instruction& one : body) {
      if (one.kind == Kind::kFor) {
        out_ += fmt::format("{}for {} in range({}, {}, {}):\n", indent, name(one.symbol), index(one.begin),
                            index(one.end), one.step);
        print(one.body, indent + "    ");
      } else if (one.kind == Kind::kStore) {
        print_store(one, indent);
      } else {
        const tile::ValueInfo& result = program_.values[one.results.at(0)];
        out_ += indent + result.name + " = " + over(result.type.lanes, computed(one)) + "\n";
      }
    }
  }

  void print_store(const Instruction& store, std::string indent) {
    for (const Symbol lane : united(tile::lanes_of(program_, store.access), type(store.operands[0]).lanes)) {
      out_ += fmt::format("{}for {} in range({}):\n", indent, name(lane), tile::width_of(program_, lane));
      indent += "    ";
    }
    if (store.access.mask != kNoValue) out_ += indent + "if " + value(store.access.mask) + ":\n", indent += "    ";
    out_ += indent + element(store.access) + " = " + value(store.operands[0]) + "\n";
  }

  // The formula for every place.
  std::string over(const std::vector<Symbol>& lanes, const std::string& formula) const {
    return lanes.empty() ? formula : "{" + place(lanes) + ": " + formula + loops(lanes) + "}";
  }

  std::string computed(const Instruction& one) const {
    switch (one.kind) {
      case Kind::kConstant:
        return is_floating(type(one.results[0]).dtype) ? python::number(one.number) : std::to_string(one.integer);
      case Kind::kIndex: return index(one.index);
      case Kind::kLoad: {
        const std::string loaded = element(one.access) + ".item()";
        if (one.access.mask == kNoValue) return loaded;
        return loaded + " if " + value(one.access.mask) + " else " + python::number(one.access.otherwise);
      }
      case Kind::kFold:
        return (one.reduce == ReduceOp::kSum ? "sum(" : "max(") + value(one.operands[0]) + loops(one.lanes) + ")";
      case Kind::kOp: {
        std::vector<std::string> operands(3);
        for (size_t at = 0; at < one.operands.size(); ++at) operands[at] = value(one.operands[at]);
        return fmt::format(fmt::runtime(operations().at(one.op)), operands[0], operands[1], operands[2]);
      }
      default: fail_internal(__FILE__, __LINE__, "the toy has no such instruction");
    }
  }

  std::string place(const std::vector<Symbol>& lanes) const {
    std::vector<std::string> names;
    for (const Symbol lane : lanes) names.push_back(name(lane));
    return lanes.size() == 1 ? names[0] : "(" + join(names, ", ") + ")";
  }
  std::string loops(const std::vector<Symbol>& lanes) const {
    std::string text;
    for (const Symbol lane : lanes)
      text += fmt::format(" for {} in range({})", name(lane), tile::width_of(program_, lane));
    return text;
  }
  std::string value(Value id) const {
    const tile::ValueInfo& one = program_.values[id];
    return one.type.lanes.empty() ? one.name : one.name + "[" + place(one.type.lanes) + "]";
  }
  std::string element(const Access& access) const {
    return program_.buffers[access.buffer].name + "[" + index(access.coordinates.at(0).index) + "]";
  }
  std::string index(const Index& index) const {
    return kernel::print_index(
        index,
        {.name = [this](Symbol symbol) { return name(symbol); }, .quotient = " // ", .remainder = " % ", .number = {}});
  }
  static std::vector<Symbol> united(std::vector<Symbol> lanes, const std::vector<Symbol>& others) {
    for (const Symbol lane : others)
      if (!tile::has_lane(lanes, lane)) lanes.push_back(lane);
    return lanes;
  }
  const tile::TileType& type(Value id) const { return program_.values[id].type; }
  const std::string& name(Symbol symbol) const { return program_.symbols[symbol].name; }

  const tile::Program& program_;
  std::string out_;
};

class Printer : public TargetPrinter {
 public:
  std::string device_text() const override { return "\"cpu\""; }
  std::string imports(const Program&) const override { return "import torch\n"; }
  std::string kernels(const Program& program) const override {
    std::vector<std::string> texts;
    for (const auto& lowered : program.lowered) texts.push_back(ProgramText(lowered->program).text());
    return join(texts, "\n\n");
  }
  std::string launch(const Program& program, const TileStep& step, const TileStep*) const override {
    return program.tiles[step.program].name + "(" + join(step.tensors, ", ") + ")\n";
  }
  std::string trailer(const Program&) const override { return ""; }
};

}  // namespace

bool can_print(ScalarOp op) { return operations().contains(op); }
bool can_print(ReduceOp op) { return op == ReduceOp::kSum || op == ReduceOp::kMax; }

std::unique_ptr<TargetPrinter> make_printer() { return std::make_unique<Printer>(); }

}  // namespace kw::toy
