#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <set>

#include "kernel/kernel.hpp"
#include "kernel/scalar_values.hpp"
#include "support/error.hpp"

namespace kw::kernel {
namespace {

bool is_identifier(const std::string& name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

using Part = Fault::Part;

class Checker {
 public:
  explicit Checker(const Kernel& kernel) : kernel_(kernel), ranges_(ranges_of(kernel)) {}

  // Throws the first Fault.
  void run() {
    require(is_identifier(kernel_.name), "its name is no identifier");
    for_each(Part::kSymbol, kernel_.symbols, [&](const SymbolInfo& symbol) { check_symbol(symbol); });
    for_each(Part::kBuffer, kernel_.buffers, [&](const Buffer& buffer) { check_buffer(buffer); });
    for_each(Part::kExpr, kernel_.exprs, [&](const Expr& expr) { check_expr(expr); });
    depends_ = dependences(kernel_);
    for_each(Part::kState, kernel_.states, [&](const State& state) { check_state(state); });
    for_each(Part::kStore, kernel_.stores, [&](const Store& store) { check_store(store); });
  }

 private:
  void require(bool holds, const std::string& rule) const {
    if (!holds) throw Fault{part_, place_, rule};
  }

  template <typename Parts, typename Check>
  void for_each(Part part, const Parts& parts, const Check& check) {
    part_ = part;
    for (place_ = 0; place_ < static_cast<int>(parts.size()); ++place_) check(parts[place_]);
  }

  void name(const std::string& name) {
    require(is_identifier(name), fmt::format("'{}' is no identifier", name));
    require(names_.insert(name).second, fmt::format("'{}' is named twice", name));
  }

  bool is_axis(Symbol symbol) const {
    return symbol >= 0 && symbol < static_cast<Symbol>(kernel_.symbols.size()) &&
           kernel_.symbols[symbol].kind == SymbolKind::kAxis;
  }

  void check_index(const Index& index, bool sizes_only) const {
    std::vector<bool> used;
    collect_symbols(index, used);
    for (size_t symbol = 0; symbol < used.size(); ++symbol) {
      if (!used[symbol]) continue;
      require(symbol < kernel_.symbols.size(), "an index uses a symbol that does not exist");
      require(!sizes_only || kernel_.symbols[symbol].kind == SymbolKind::kSize,
              fmt::format("'{}' is no size", kernel_.symbols[symbol].name));
    }
  }

  void check_symbol(const SymbolInfo& symbol) {
    name(symbol.name);
    require(symbol.range.low >= 0 && symbol.range.low <= symbol.range.high && symbol.range.divisor >= 1,
            "it has no range");
    if (symbol.kind == SymbolKind::kAxis) check_index(symbol.extent, true);
  }

  void check_buffer(const Buffer& buffer) {
    name(buffer.name);
    for (const Index& size : buffer.shape) check_index(size, true);
    for (const Index& stride : buffer.strides) check_index(stride, true);
    require(buffer.alignment > 0 && std::has_single_bit(static_cast<uint64_t>(buffer.alignment)),
            "its alignment is no power of two");
    require(buffer.strides.empty() || buffer.strides.size() == buffer.shape.size(),
            fmt::format("it has {} sizes and {} strides", buffer.shape.size(), buffer.strides.size()));
  }

  const Expr& operand(const Expr& expr, size_t place) const { return kernel_.exprs[expr.operands[place]]; }

  void check_expr(const Expr& expr) {
    if (!expr.name.empty()) name(expr.name);
    for (ExprId input : inputs_of(expr)) require(input >= 0 && input < place_, "an operand comes after its use");
    for (Symbol axis : expr.axes) require(is_axis(axis), "it folds what is no axis");
    switch (expr.kind) {
      case ExprKind::kConstant: check_constant(expr); break;
      case ExprKind::kIndex:
        require(expr.dtype == DType::i32 || expr.dtype == DType::i64, "an index is an i32 or i64");
        check_index(expr.index, false);
        check_width(expr);
        break;
      case ExprKind::kLoad:
        check_access(expr.access);
        require(expr.dtype == kernel_.buffers[expr.access.buffer].dtype, "a load has its buffer's type");
        require(kernel_.buffers[expr.access.buffer].role != BufferRole::kOutput, "an output is read");
        break;
      case ExprKind::kOp: check_op(expr); break;
      case ExprKind::kReduce: check_fold(expr); break;
      case ExprKind::kScan: check_scan(expr); break;
      case ExprKind::kDot:
        require(expr.operands.size() == 2 && !expr.axes.empty(), "a dot has two operands and axes");
        require(operand(expr, 0).dtype == operand(expr, 1).dtype, "a dot's operands have one type");
        break;
      case ExprKind::kState: check_previous(expr); break;
    }
  }

  void check_constant(const Expr& expr) const {
    if (!is_integral(expr.dtype) || wrap_to(expr.dtype, expr.integer) == expr.integer) return;
    const std::string wider = expr.dtype == DType::i32 ? fmt::format(": write {}:i64", expr.integer) : "";
    require(false, fmt::format("{} is no number of type {}{}", expr.integer, kw::name_of(expr.dtype), wider));
  }

  void check_width(const Expr& expr) const {
    const Interval range = range_of(expr.index, ranges_);
    if (expr.dtype == DType::i64 || (range.low >= INT32_MIN && range.high <= INT32_MAX)) return;
    IndexWords words;
    words.name = [&](Symbol symbol) { return kernel_.symbols[symbol].name; };
    std::string text = print_index(expr.index, words);
    if (!as_symbol(expr.index)) text = "{" + text + "}";
    require(false, fmt::format("{} goes from {} to {}, beyond i32: write {}:i64", text, range.low, range.high, text));
  }

  void check_op(const Expr& expr) const {
    require(static_cast<int>(expr.operands.size()) == arity_of(expr.op),
            fmt::format("{} takes {} operands, not {}", name_of(expr.op), arity_of(expr.op), expr.operands.size()));
    const bool select = expr.op == ScalarOp::kSelect;
    if (select) require(operand(expr, 0).dtype == DType::b1, "the condition of a select is a b1");
    for (size_t place = select ? 2 : 1; place < expr.operands.size(); ++place)
      require(operand(expr, place).dtype == operand(expr, select ? 1 : 0).dtype,
              fmt::format("{} of {} and {}", name_of(expr.op), kw::name_of(operand(expr, select ? 1 : 0).dtype),
                          kw::name_of(operand(expr, place).dtype)));
    if (is_predicate(expr.op)) require(expr.dtype == DType::b1, "a predicate is a b1");
    else if (expr.op != ScalarOp::kCast)
      require(expr.dtype == operand(expr, select ? 1 : 0).dtype, "the result has another type than the operands");
  }

  void check_fold(const Expr& expr) const {
    require(!expr.axes.empty(), "it folds no axis");
    require(std::adjacent_find(expr.axes.begin(), expr.axes.end()) == expr.axes.end(), "it folds an axis twice");
    require(static_cast<int>(expr.operands.size()) == arity_of(expr.reduce), "a fold has too few or too many operands");
    require(expr.component >= 0 && expr.component < components_of(expr.reduce), "a fold has no such component");
    const bool scan_only = expr.reduce == ReduceOp::kLogSumExp || expr.reduce == ReduceOp::kFirst ||
                           is_sort(expr.reduce);
    require(!scan_only, "it is of a scan only");
    require(expr.reduce != ReduceOp::kExtendedSum || operand(expr, 0).dtype == DType::f64, "an extended sum is of f64");
    check_logical(expr);
  }

  void check_logical(const Expr& expr) const {
    const bool logical = expr.reduce == ReduceOp::kAny || expr.reduce == ReduceOp::kAll;
    require(!logical || operand(expr, 0).dtype == DType::b1, "any and all fold b1");
  }

  void check_scan(const Expr& expr) const {
    require(expr.axes.size() == 1, "a scan walks one axis");
    require(has_operands_of_scan(expr.reduce, expr.operands.size()), "a scan has too few or too many operands");
    require(expr.component >= 0 && expr.component < components_of_scan(expr.reduce, expr.operands.size()),
            "a scan has no such component");
    if (takes_along(expr.reduce) && expr.operands.size() == 2)
      require(operand(expr, 1).dtype == DType::i32 || operand(expr, 1).dtype == DType::i64,
              "what comes along a scan is an i32 or i64");
    require(!is_sort(expr.reduce) || !expr.reversed, "a sort is not reversed");
    require(expr.integer == 0 || (is_sort(expr.reduce) && expr.integer > 0), "first places are a sort's");
    check_logical(expr);
  }

  void check_previous(const Expr& expr) const {
    require(expr.state >= 0 && expr.state < static_cast<int>(kernel_.states.size()), "it reads no state");
    const State& state = kernel_.states[expr.state];
    require(expr.dtype == state.dtype, "a state has another type");
    require(expr.access.coordinates.size() == state.axes.size(),
            "a state is read with too few or too many coordinates");
    for (const Coordinate& coordinate : expr.access.coordinates) {
      require(coordinate.value == kNoExpr, "a state is read at indices only");
      check_index(coordinate.index, false);
    }
  }

  void check_access(const Access& access) const {
    require(access.buffer >= 0 && access.buffer < static_cast<int>(kernel_.buffers.size()), "there is no such buffer");
    const Buffer& buffer = kernel_.buffers[access.buffer];
    require(access.coordinates.size() == buffer.shape.size(),
            fmt::format("'{}' has {} dimensions, not {}", buffer.name, buffer.shape.size(), access.coordinates.size()));
    if (access.mask != kNoExpr) require(kernel_.exprs[access.mask].dtype == DType::b1, "a mask is a b1");
    for (size_t place = 0; place < access.coordinates.size(); ++place) {
      const Coordinate& coordinate = access.coordinates[place];
      check_index(coordinate.index, false);
      if (coordinate.value != kNoExpr) {
        const DType dtype = kernel_.exprs[coordinate.value].dtype;
        require(dtype == DType::i32 || dtype == DType::i64, "a coordinate is an i32 or i64");
      } else if (access.mask == kNoExpr) {
        check_bounds(buffer, coordinate.index, buffer.shape[place]);
      }
    }
  }

  // Beyond the ends only where the ranges show it: an axis of run-time extent ends where its size says.
  void check_bounds(const Buffer& buffer, const Index& index, const Index& size) const {
    if (has_empty_axis()) return;
    const auto past = [&](const Index& value) {
      return substitute(
          value,
          [&](Symbol symbol) {
            const SymbolInfo& info = kernel_.symbols[symbol];
            return info.kind == SymbolKind::kAxis && as_constant(info.extent) ? symbol_index(symbol)
                   : info.kind == SymbolKind::kAxis                           ? info.extent - Index(1)
                                                                              : symbol_index(symbol);
          },
          ranges_);
    };
    require(range_of(index, ranges_).high >= 0, fmt::format("an index of '{}' is always negative", buffer.name));
    if (!as_constant(size)) return;
    const Interval range = range_of(past(index), ranges_);
    require(range_of(index, ranges_).low >= 0, fmt::format("an index of '{}' may be negative", buffer.name));
    require(range.high < *as_constant(size), fmt::format("an index of '{}' reaches {}, beyond its size {}", buffer.name,
                                                         range.high, *as_constant(size)));
  }

  bool has_empty_axis() const {
    return std::any_of(kernel_.symbols.begin(), kernel_.symbols.end(), [&](const SymbolInfo& symbol) {
      return symbol.kind == SymbolKind::kAxis && range_of(symbol.extent, ranges_).high < 1;
    });
  }

  void only_on(const std::vector<bool>& axes, const std::vector<Symbol>& allowed, Symbol more,
               const std::string& what) const {
    for (size_t axis = 0; axis < axes.size(); ++axis)
      require(!axes[axis] || static_cast<Symbol>(axis) == more ||
                  std::find(allowed.begin(), allowed.end(), static_cast<Symbol>(axis)) != allowed.end(),
              fmt::format("{} depends on '{}'", what, kernel_.symbols[axis].name));
  }

  void check_state(const State& state) {
    name(state.name);
    require(is_axis(state.along) && kernel_.symbols[state.along].ordered, "it is carried along no ordered axis");
    for (Symbol axis : state.axes) require(is_axis(axis) && axis != state.along, "it depends on what is no axis");
    for (const ExprId id : {state.initial, state.next}) {
      require(id >= 0 && id < static_cast<ExprId>(kernel_.exprs.size()), "it has no initial or no next value");
      require(kernel_.exprs[id].dtype == state.dtype, "its values have another type");
    }
    only_on(depends_[state.initial], state.axes, -1, "its initial value");
    only_on(depends_[state.next], state.axes, state.along, "its next value");
  }

  // Whatever the data are. Stores of which one combines with what the other left may be meant.
  static bool writes_the_same(const Store& left, const Store& right) {
    return !left.combines && left.access.buffer == right.access.buffer &&
           left.access.coordinates == right.access.coordinates && left.access.mask == right.access.mask;
  }

  void check_store(const Store& store) {
    check_access(store.access);
    const Buffer& buffer = kernel_.buffers[store.access.buffer];
    require(buffer.role != BufferRole::kInput, "it writes an input");
    require(store.value >= 0 && store.value < static_cast<ExprId>(kernel_.exprs.size()), "it has no value");
    require(kernel_.exprs[store.value].dtype == buffer.dtype,
            fmt::format("a {} into a buffer of {}", kw::name_of(kernel_.exprs[store.value].dtype),
                        kw::name_of(buffer.dtype)));
    for (Symbol axis : store.over) require(is_axis(axis), "every point of what is no axis stores");
    for (int other = 0; other < place_ && !store.combines; ++other)
      require(!writes_the_same(kernel_.stores[other], store), "another store writes the same elements");
    if (!store.combines && !is_decided_by_data(store.access)) {
      const std::vector<bool> access = dependences(kernel_, store.access, depends_);
      std::vector<Symbol> axes;
      for (size_t axis = 0; axis < access.size(); ++axis)
        if (access[axis]) axes.push_back(static_cast<Symbol>(axis));
      only_on(depends_[store.value], axes, -1, "its value");
    }
  }

  const Kernel& kernel_;
  std::vector<SymbolRange> ranges_;
  std::set<std::string> names_;
  std::vector<std::vector<bool>> depends_;
  Part part_ = Part::kKernel;
  int place_ = 0;
};

std::string name_of(const Kernel& kernel, const Fault& fault) {
  switch (fault.part) {
    case Part::kKernel: return "";
    case Part::kSymbol: return fmt::format("'{}': ", kernel.symbols[fault.place].name);
    case Part::kBuffer: return fmt::format("'{}': ", kernel.buffers[fault.place].name);
    case Part::kExpr: {
      const std::string& name = kernel.exprs[fault.place].name;
      return name.empty() ? fmt::format("expression {}: ", fault.place) : fmt::format("'{}': ", name);
    }
    case Part::kState: return fmt::format("state '{}': ", kernel.states[fault.place].name);
    case Part::kStore: {
      const int buffer = kernel.stores[fault.place].access.buffer;
      const bool exists = buffer >= 0 && buffer < static_cast<int>(kernel.buffers.size());
      return exists ? fmt::format("the store to '{}': ", kernel.buffers[buffer].name) : "a store: ";
    }
  }
  return "";
}

}  // namespace

std::optional<Fault> first_fault(const Kernel& kernel) {
  try {
    Checker(kernel).run();
  } catch (const Fault& fault) { return fault; }
  return std::nullopt;
}

void check(const Kernel& kernel) {
  if (const auto fault = first_fault(kernel))
    throw Error(ErrorKind::kInternal,
                fmt::format("kernel '{}': {}{}", kernel.name, name_of(kernel, *fault), fault->rule));
}

}  // namespace kw::kernel
