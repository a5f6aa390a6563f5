#include "emit/cpu/scatters.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/text.hpp"

namespace kw::cpu {

using namespace kw::kernel_ir;
using namespace precedence;

namespace {

// Asking whose an element is costs a thread as much as a few elements, wherever the answer cannot be foreseen: half of
// the time between two.
constexpr int64_t kWorthAsking = 16;
constexpr int kEnoughThreads = 4;

std::string scattered_text(const Expr& scatter, const std::string& element, DType dtype, const Text& value,
                           DType value_dtype, HelperSet& helpers) {
  if (scatter.overwrites) return element + " = " + cast_text(value, value_dtype, dtype, helpers).text + ";";
  const DType work = is_narrow_float(dtype) ? DType::f32 : dtype;
  const Text old = cast_text({element, kPrimary}, dtype, work, helpers),
             operand = cast_text(value, value_dtype, work, helpers);
  Expr fold;
  fold.kind = ExprKind::kOp;
  fold.dtype = work;
  switch (scatter.reduce) {
    case ReduceOp::kProd: fold.op = ScalarOp::kMul; break;
    case ReduceOp::kMax: fold.op = ScalarOp::kMaximum; break;
    case ReduceOp::kMin: fold.op = ScalarOp::kMinimum; break;
    default: fold.op = ScalarOp::kAdd; break;
  }
  const Text folded = op_text(fold, {old, operand}, {work, work}, helpers);
  return element + " = " + cast_text(folded, work, dtype, helpers).text + ";";
}

}  // namespace

void ScatterPrinter::open_owners(int64_t elements_at_a_place) {
  const std::string owner = names_.fresh("owner");
  std::string owners = "threads";
  if (elements_at_a_place < kWorthAsking) {
    owners = names_.fresh("owners");
    writer_.line(fmt::format("const int {} = threads < {} ? 1 : threads;", owners, kEnoughThreads));
  }
  writer_.line(fmt::format("#pragma omp parallel for num_threads({}) schedule(static)", owners));
  writer_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", owner, owners));
  for (const Store& store : kernel_.stores) {
    const std::string& name = buffers_[store.access.buffer];
    const std::string first = names_.fresh(name + "_first"), end = names_.fresh(name + "_end");
    const int64_t reach = reach_of_scatter(kernel_, store);
    writer_.line(fmt::format("const int64_t {} = {} * int64_t{{{}}} / {};", first, owner, reach, owners));
    writer_.line(fmt::format("const int64_t {} = ({} + 1) * int64_t{{{}}} / {};", end, owner, reach, owners));
    owned_.push_back({first, end});
  }
}

void ScatterPrinter::skip_others(const Placement& placement, int depth,
                                 const std::function<const Text*(ExprId)>& known) {
  const auto place_of = [&](const Store& store) -> const Text* {
    const Expr* scatter = scatter_of(kernel_, store);
    return scatter && placement.reached[scatter->operands[0]] && placement.depth[scatter->operands[0]] <= depth
               ? known(scatter->operands[0])
               : nullptr;
  };
  std::vector<std::string> conditions;
  const Text* first = place_of(kernel_.stores[0]);
  if (!is_own_ && owned_.size() == 1 && first != nullptr) {
    conditions.push_back(
        fmt::format("{0} < {1} || {0} >= {2}", within(*first, kRelation + 1), owned_[0].first, owned_[0].end));
    is_own_ = true;
  }
  if (!is_accepted_ && std::all_of(kernel_.stores.begin(), kernel_.stores.end(),
                                   [&](const Store& store) { return place_of(store) != nullptr; })) {
    conditions.push_back("refused");
    is_accepted_ = true;
  }
  if (!conditions.empty()) writer_.line("if (" + join(conditions, " || ") + ") continue;");
}

void ScatterPrinter::print(const Store& store, Text place, const Text& value,
                           const std::function<std::string(const Text&)>& element_at) {
  const Expr& scatter = kernel_.exprs[store.value];
  if (place.precedence != kPrimary) {
    const std::string name = names_.fresh("place");
    writer_.line(
        fmt::format("const {} {} = {};", value_type(kernel_.exprs[scatter.operands[0]].dtype), name, place.text));
    place = {name, kPrimary};
  }
  std::string guard = guard_text(kernel_, store.access.guards, axes_);
  if (!owned_.empty() && !is_own_) {
    const Owned& owned = owned_[static_cast<size_t>(&store - kernel_.stores.data())];
    guard = fmt::format("{0} >= {1} && {0} < {2}", place.text, owned.first, owned.end) +
            (guard.empty() ? "" : " && " + guard);
  }
  if (!is_accepted_) guard = guard.empty() ? "!refused" : "!refused && " + guard;
  const DType dtype = kernel_.buffers[store.access.buffer].dtype;
  const std::string line = scattered_text(scatter, element_at(place), dtype, value,
                                          kernel_.exprs[scatter.operands[1]].dtype, helpers_);
  writer_.line(guard.empty() ? line : "if (" + guard + ") " + line);
}

}  // namespace kw::cpu
