#include <algorithm>

#include "ir/op_registry.hpp"
#include "passes/canonicalise.hpp"

namespace kw {
namespace {

struct Copies {
  Node& node;
  CanonicalContext& context;
  Rewriter& rewriter = context.rewriter;
  std::string_view name = base_name(node.op);
  ValueId self = node.value("self") != kNoValue ? node.value("self") : node.value("input");

  const TensorType& result() const { return rewriter.type(node.results[0]); }

  bool become(std::string op, std::vector<NamedArgument> arguments) {
    std::erase_if(arguments,
                  [](const NamedArgument& argument) { return std::holds_alternative<None>(argument.value); });
    op = "aten." + op;
    if (node.op != op || node.arguments != arguments) rewriter.count(NumericTag::kExact);
    node.op = std::move(op);
    node.arguments = std::move(arguments);
    return false;
  }

  // PyTorch returns the operand itself here.
  bool alias() {
    if (!same_place(rewriter.type(self), result())) return false;
    if (context.sharing.is_output(node.results[0]) && rewriter.type(self) != result()) return false;
    rewriter.replace(node.results[0], self);
    return true;
  }

  bool copy() {
    if (!context.sharing.merge(rewriter.graph(), node.results[0], self)) return false;
    rewriter.replace(node.results[0], self);
    return true;
  }

  Argument memory_format() const {
    const Argument* format = node.find("memory_format");
    return format ? *format : Argument(None{});
  }

  bool conversion(bool copies) {
    const TensorType& from = rewriter.type(self);
    if (from.dtype == result().dtype && from.device == result().device) {
      if (copies ? copy() : alias()) return true;
      return become("clone.default", {{"self", ValueRef{self}}, {"memory_format", memory_format()}});
    }
    return become(
        "_to_copy.default",
        {{"self", ValueRef{self}},
         {"dtype", from.dtype == result().dtype ? Argument(None{}) : Argument(result().dtype)},
         {"device", from.device == result().device ? Argument(None{}) : Argument(Keyword{"device", result().device})},
         {"memory_format", memory_format()}});
  }

  bool run() {
    if (self == kNoValue || node.results[0] == kNoValue) return false;
    if (name == "contiguous") {
      if (alias()) return true;
      const bool given = !std::holds_alternative<None>(memory_format());
      return become(
          "clone.default",
          {{"self", ValueRef{self}},
           {"memory_format", given ? memory_format() : Argument(Keyword{"memory_format", "contiguous_format"})}});
    }
    if (name == "lift_fresh_copy" || name == "clone") {
      if (copy()) return true;
      return become("clone.default", {{"self", ValueRef{self}}, {"memory_format", memory_format()}});
    }
    if (name == "_to_copy") return conversion(true);
    if (name == "to") return conversion(node.boolean("copy", false));
    if (name == "type_as" || name == "float" || name == "half" || name == "double" || name == "bool")
      return conversion(false);
    if (name == "dropout" || name == "feature_dropout" || name == "alpha_dropout" || name == "feature_alpha_dropout")
      return is_pure(node) && alias();
    if (name == "native_dropout" && is_pure(node)) {
      const bool mask_is_read = node.results.size() > 1 && node.results[1] != kNoValue &&
                                context.reads[node.results[1]] > 0;
      return !mask_is_read && copy();
    }
    return false;
  }
};

}  // namespace

bool canonicalise_copy(Node& node, CanonicalContext& context) {
  const OpClass op_class = class_of(node.op);
  if (op_class != OpClass::kPointwise && op_class != OpClass::kRandom) return false;
  return Copies{node, context}.run();
}

}  // namespace kw
