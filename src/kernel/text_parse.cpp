#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "kernel/builder.hpp"
#include "kernel/index_parse.hpp"
#include "kernel/text.hpp"
#include "support/error.hpp"

namespace kw::kernel {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text, "kernel"), builder_("") {}

  Kernel run() {
    reader_.expect("kernel");
    const std::string name = reader_.name();
    reader_.expect("{");
    std::string doc;
    if (reader_.accept("doc")) doc = reader_.quoted();
    builder_ = Builder(name, doc);
    while (!reader_.accept("}")) item();
    if (!reader_.at_end()) reader_.fail("expected the end of the text");
    for (const State& state : kernel().states)
      if (state.next == kNoExpr)
        reader_.fail_at(declared_[state.name], fmt::format("state '{}' has no next value", state.name));
    move_positions(builder_.drop_unused());
    if (const auto fault = first_fault(kernel())) reader_.fail_at(position_of(*fault), fault->rule);
    return builder_.finish();
  }

 private:
  // A number, or an index, without a type takes that of what it is combined with; i32 where that has none. Until then a
  // whole one is an i64, so that no product of indices wraps.
  struct Parsed {
    ExprId id = kNoExpr;
    bool bare = false;
    size_t at = 0;
  };

  const Kernel& kernel() const { return builder_.kernel(); }
  const Expr& expr(ExprId id) const { return kernel().exprs[id]; }

  // --- Where everything was read ---

  // Equal expressions are one, which stands where it was written first.
  Parsed placed(ExprId id, bool bare, size_t at) {
    expr_positions_.emplace(id, at);
    return {id, bare, at};
  }

  void move_positions(const std::vector<ExprId>& places) {
    std::map<ExprId, size_t> moved;
    for (const auto& [id, at] : expr_positions_)
      if (places[id] != kNoExpr) moved[places[id]] = at;
    expr_positions_ = std::move(moved);
  }

  size_t position_of(const Fault& fault) const {
    switch (fault.part) {
      case Fault::Part::kKernel: return 0;
      case Fault::Part::kSymbol: return declared_.at(kernel().symbols[fault.place].name);
      case Fault::Part::kBuffer: return declared_.at(kernel().buffers[fault.place].name);
      case Fault::Part::kExpr: return expr_positions_.at(fault.place);
      case Fault::Part::kState: return declared_.at(kernel().states[fault.place].name);
      case Fault::Part::kStore: return store_positions_[fault.place];
    }
    return 0;
  }

  // --- Declarations ---

  void item() {
    const size_t at = reader_.position();
    if (reader_.accept("size")) return size();
    if (reader_.accept("axis")) return axes();
    for (const auto& [word, role] : {std::pair{"inout", BufferRole::kInOut}, std::pair{"in", BufferRole::kInput},
                                     std::pair{"out", BufferRole::kOutput}})
      if (reader_.accept(word)) return buffer(role);
    if (reader_.accept("state")) return state();
    if (reader_.accept("next")) return next();
    const std::string name = reader_.name();
    if (const auto found = buffers_.find(name); found != buffers_.end()) return store(found->second, at);
    declare(name, at);
    reader_.expect("=");
    const ExprId value = settled(expression());
    locals_[name] = value;
    if (expr(value).name.empty()) builder_.named(name, value);
  }

  void declare(const std::string& name, size_t at) {
    if (!declared_.emplace(name, at).second) reader_.fail_at(at, fmt::format("'{}' is named twice", name));
  }

  std::string declared_name() {
    const size_t at = reader_.position();
    std::string name = reader_.name();
    declare(name, at);
    return name;
  }

  void size() {
    const std::string name = declared_name();
    reader_.expect("=");
    SymbolRange range;
    const size_t at = reader_.position();
    range.low = reader_.integer();
    reader_.expect("..");
    range.high = reader_.integer();
    if (reader_.accept("by")) range.divisor = reader_.integer();
    if (range.low < 0 || range.high < range.low || range.divisor < 1)
      reader_.fail_at(at, fmt::format("'{}' has no range: it goes from 0 or more to no less, by 1 or more", name));
    symbols_[name] = builder_.size(name, range);
  }

  void axes() {
    do {
      const std::string name = declared_name();
      reader_.expect("=");
      Index extent = index();
      symbols_[name] = builder_.axis(name, std::move(extent), reader_.accept("ordered"));
    } while (reader_.accept(","));
  }

  Index index() {
    const FindSymbol find = [&](std::string_view name) -> std::optional<Symbol> {
      const auto found = symbols_.find(std::string(name));
      return found == symbols_.end() ? std::nullopt : std::optional(found->second);
    };
    return parse_index(reader_, find, ranges_of(kernel()));
  }

  std::vector<Index> shape() {
    std::vector<Index> sizes;
    reader_.expect("[");
    if (reader_.accept("]")) return sizes;
    do sizes.push_back(index());
    while (reader_.accept(","));
    reader_.expect("]");
    return sizes;
  }

  DType dtype() {
    const size_t at = reader_.position();
    const std::string name = reader_.name();
    const auto found = parse_dtype(name);
    if (!found) reader_.fail_at(at, fmt::format("'{}' is no type", name));
    return *found;
  }

  void buffer(BufferRole role) {
    const std::string name = declared_name();
    reader_.expect(":");
    const DType type = dtype();
    std::vector<Index> sizes = shape(), strides;
    if (reader_.accept("strides")) strides = shape();
    const int made = buffers_[name] = builder_.buffer(name, type, std::move(sizes), role, std::move(strides));
    if (reader_.accept("align")) builder_.align(made, reader_.integer());
  }

  void state() {
    const std::string name = declared_name();
    reader_.expect(":");
    const DType type = dtype();
    const size_t at = reader_.position();
    std::vector<Symbol> over;
    for (const Index& one : shape()) {
      const auto symbol = as_symbol(one);
      if (!symbol) reader_.fail_at(at, "a state depends on axes");
      over.push_back(*symbol);
    }
    reader_.expect("along");
    const Symbol along = axis();
    reader_.expect("from");
    const ExprId initial = typed(expression(), type);
    states_[name] = builder_.state(name, type, std::move(over), along, initial);
  }

  Symbol axis() {
    const size_t at = reader_.position();
    const std::string name = reader_.name();
    const auto found = symbols_.find(name);
    if (found == symbols_.end() || kernel().symbols[found->second].kind != SymbolKind::kAxis)
      reader_.fail_at(at, fmt::format("'{}' is no axis", name));
    return found->second;
  }

  void next() {
    const size_t at = reader_.position();
    const std::string name = reader_.name();
    const auto found = states_.find(name);
    if (found == states_.end()) reader_.fail_at(at, fmt::format("'{}' is no state", name));
    reader_.expect("=");
    builder_.set_next(found->second, typed(expression(), kernel().states[found->second].dtype));
  }

  void store(int buffer, size_t at) {
    store_positions_.push_back(at);
    Access access = this->access(buffer);
    if (reader_.accept("where")) access.mask = condition();
    std::vector<Symbol> over;
    if (reader_.accept("over")) do
        over.push_back(axis());
      while (reader_.accept(","));
    std::optional<ReduceOp> reduce;
    for (const auto& [mark, op] : {std::pair{"+=", ReduceOp::kSum}, std::pair{"*=", ReduceOp::kProd},
                                   std::pair{"max=", ReduceOp::kMax}, std::pair{"min=", ReduceOp::kMin}})
      if (!reduce && reader_.accept(mark)) reduce = op;
    if (!reduce) reader_.expect("=");
    const ExprId value = typed(expression(), kernel().buffers[buffer].dtype);
    if (reduce) builder_.combine(*reduce, std::move(access), value, std::move(over));
    else builder_.store(std::move(access), value, std::move(over));
  }

  ExprId condition() {
    const Parsed mask = binary(0);
    if (expr(mask.id).dtype != DType::b1) reader_.fail_at(mask.at, "a mask is a condition");
    return mask.id;
  }

  // --- Expressions, by how tightly operators bind ---

  struct Infix {
    std::string_view mark;
    ScalarOp op;
  };

  Parsed expression() { return binary(0); }

  Parsed binary(int level) {
    static const std::vector<std::vector<Infix>> kLevels = {
        {{"or", ScalarOp::kLogicalOr}, {"xor", ScalarOp::kLogicalXor}},
        {{"and", ScalarOp::kLogicalAnd}},
        {},  // not
        {{"==", ScalarOp::kEqual},
         {"!=", ScalarOp::kNotEqual},
         {"<=", ScalarOp::kLessEqual},
         {">=", ScalarOp::kGreaterEqual},
         {"<", ScalarOp::kLess},
         {">", ScalarOp::kGreater}},
        {{"+", ScalarOp::kAdd}, {"-", ScalarOp::kSub}},
        {{"*", ScalarOp::kMul}, {"/", ScalarOp::kDiv}, {"%", ScalarOp::kRemainder}},
    };
    if (level == 2 && reader_.next_is("not")) {
      const size_t at = reader_.position();
      reader_.expect("not");
      return apply(ScalarOp::kLogicalNot, {binary(2)}, at);
    }
    if (level == static_cast<int>(kLevels.size())) return unary();
    Parsed left = binary(level + 1);
    while (true) {
      const auto found = std::find_if(kLevels[level].begin(), kLevels[level].end(), [&](const Infix& infix) {
        return !is_combining(infix.mark) && reader_.accept(infix.mark);
      });
      if (found == kLevels[level].end()) return left;
      const Parsed right = binary(level + 1);
      const bool whole = !is_floating(expr(left.id).dtype) && !is_floating(expr(right.id).dtype);
      const ScalarOp op = found->op == ScalarOp::kDiv && whole ? ScalarOp::kFloorDiv : found->op;
      if (op == ScalarOp::kFloorDiv && expr(right.id).kind == ExprKind::kConstant && expr(right.id).integer == 0)
        reader_.fail_at(right.at, "a whole number is divided by 0");
      left = apply(op, {left, right}, left.at);
    }
  }

  // `+=` and `*=` after a store's mask are no operators of it.
  bool is_combining(std::string_view mark) {
    return (mark == "+" && reader_.next_is("+=")) || (mark == "*" && reader_.next_is("*="));
  }

  Parsed unary() {
    const size_t at = reader_.position();
    if (!reader_.accept("-")) return primary();
    const Parsed operand = unary();
    const Expr& one = expr(operand.id);
    if (one.kind == ExprKind::kConstant && one.name.empty()) {
      const ExprId id = is_floating(one.dtype) ? builder_.constant(one.dtype, -one.number)
                                               : builder_.constant(one.dtype, -one.integer);
      return placed(id, operand.bare, at);
    }
    return apply(ScalarOp::kNeg, {operand}, at);
  }

  Parsed primary() {
    const size_t at = reader_.position();
    if (reader_.accept("(")) {
      Parsed inner = expression();
      reader_.expect(")");
      inner.at = at;
      return inner;
    }
    if (reader_.accept("{")) {
      Index value = index();
      reader_.expect("}");
      return suffixed(builder_.index(std::move(value), DType::i64), at);
    }
    if (std::isdigit(static_cast<unsigned char>(reader_.peek())) || reader_.next_is("inf") || reader_.next_is("nan"))
      return number(at);
    if (reader_.accept("scan")) return scan(at);
    const std::string name = reader_.name();
    if (const auto found = locals_.find(name); found != locals_.end()) return {found->second, false, at};
    if (const auto found = symbols_.find(name); found != symbols_.end())
      return suffixed(builder_.index(symbol_index(found->second), DType::i64), at);
    if (const auto found = buffers_.find(name); found != buffers_.end()) return load(found->second, at);
    if (const auto found = states_.find(name); found != states_.end()) return previous(found->second, at);
    if (reader_.next_is("(")) return call(name, at);
    reader_.fail_at(at, fmt::format("nothing is called '{}' here", name));
  }

  Parsed suffixed(ExprId id, size_t at) {
    if (!reader_.accept(":")) return placed(id, true, at);
    const DType type = dtype();
    return placed(retyped(id, type, at), false, at);
  }

  // A number or index as one of another type.
  ExprId retyped(ExprId id, DType type, size_t at) { return placed(converted(id, type, at), false, at).id; }

  ExprId converted(ExprId id, DType type, size_t at) {
    const Expr one = expr(id);
    if (one.dtype == type) return id;
    if (one.kind == ExprKind::kConstant && is_floating(type))
      return builder_.constant(type, is_floating(one.dtype) ? one.number : static_cast<double>(one.integer));
    if (one.kind == ExprKind::kConstant && !is_floating(one.dtype)) return builder_.constant(type, one.integer);
    if (one.kind == ExprKind::kIndex && (type == DType::i32 || type == DType::i64))
      return builder_.index(one.index, type);
    if (one.kind == ExprKind::kIndex)
      reader_.fail_at(
          at, fmt::format("a {0} is expected here, and this is an index: cast it with {0}(…)", kw::name_of(type)));
    reader_.fail_at(at,
                    fmt::format("a {} is expected here, and this is a {}", kw::name_of(type), kw::name_of(one.dtype)));
  }

  Parsed number(size_t at) {
    // A whole number has no point, no exponent, and is neither inf nor nan.
    const double value = reader_.number();
    const std::string_view written = reader_.between(at);
    const bool whole = std::all_of(written.begin(), written.end(), [](unsigned char c) { return std::isdigit(c); });
    if (whole && value >= 9.2e18) reader_.fail_at(at, "a whole number beyond 64 bits");
    const ExprId id = whole ? builder_.constant(DType::i64, static_cast<int64_t>(std::stoll(std::string(written))))
                            : builder_.constant(DType::f32, value);
    return suffixed(id, at);
  }

  // The value as one of `type`: bare numbers become it, the rest must be it.
  ExprId typed(const Parsed& value, DType type) {
    if (expr(value.id).dtype == type) return value.id;
    if (value.bare) return retyped(value.id, type, value.at);
    reader_.fail_at(value.at, fmt::format("a {} is expected here, and this is a {}: cast it with {}(…)",
                                          kw::name_of(type), kw::name_of(expr(value.id).dtype), kw::name_of(type)));
  }

  bool is_whole(const Parsed& value) const { return !is_floating(expr(value.id).dtype); }

  // What nothing beside it gives a type.
  ExprId settled(const Parsed& value) {
    return value.bare && is_whole(value) ? retyped(value.id, DType::i32, value.at) : value.id;
  }

  // The type that operands from `first` on share; nullopt where all are whole numbers or indices without one.
  std::optional<DType> shared_type(const std::vector<Parsed>& operands, size_t first) const {
    const auto begin = operands.begin() + static_cast<long>(first);
    const auto typed = std::find_if(begin, operands.end(), [](const Parsed& one) { return !one.bare; });
    if (typed != operands.end()) return expr(typed->id).dtype;
    // A number with a point decides.
    const auto real = std::find_if(begin, operands.end(), [&](const Parsed& one) { return !is_whole(one); });
    if (real != operands.end()) return expr(real->id).dtype;
    return std::nullopt;
  }

  Parsed apply(ScalarOp op, const std::vector<Parsed>& operands, size_t at) {
    const size_t first = op == ScalarOp::kSelect ? 1 : 0;
    if (op == ScalarOp::kSelect && expr(operands[0].id).dtype != DType::b1)
      reader_.fail_at(operands[0].at, "the condition of a select is a b1");
    const std::optional<DType> shared = shared_type(operands, first);
    if (!shared && operands.size() == 2) {
      const ExprId index = builder_.op(op, {operands[0].id, operands[1].id});
      if (index_of(expr(index))) return placed(index, true, at);
    }
    const DType type = shared.value_or(DType::i32);
    std::vector<ExprId> ids;
    for (size_t place = 0; place < operands.size(); ++place)
      ids.push_back(place < first ? operands[place].id : typed(operands[place], type));
    const bool logical = op == ScalarOp::kLogicalAnd || op == ScalarOp::kLogicalOr || op == ScalarOp::kLogicalXor ||
                         op == ScalarOp::kLogicalNot;
    if (logical && type != DType::b1) reader_.fail_at(at, fmt::format("{} is of conditions", name_of(op)));
    return placed(builder_.op(op, std::move(ids)), false, at);
  }

  std::vector<Parsed> arguments(char end) {
    std::vector<Parsed> result;
    do result.push_back(expression());
    while (reader_.accept(","));
    if (reader_.peek() != end) reader_.fail(fmt::format("expected ',' or '{}'", end));
    return result;
  }

  std::vector<Symbol> folded_axes() {
    std::vector<Symbol> result;
    reader_.expect(";");
    do result.push_back(axis());
    while (reader_.accept(","));
    reader_.expect(")");
    return result;
  }

  Parsed call(const std::string& name, size_t at) {
    reader_.expect("(");
    if (name == "dot") return dot(at);
    if (const auto type = parse_dtype(name)) {
      const Parsed operand = expression();
      reader_.expect(")");
      return placed(builder_.cast(*type, settled(operand)), false, at);
    }
    // `max(x; key)` folds, `maximum(x, y)` does not.
    if (const auto op = find_scalar_op(name); op && *op != ScalarOp::kCast) {
      const std::vector<Parsed> operands = arguments(')');
      reader_.expect(")");
      if (static_cast<int>(operands.size()) != arity_of(*op))
        reader_.fail_at(at, fmt::format("{} takes {} operands, not {}", name, arity_of(*op), operands.size()));
      return apply(*op, operands, at);
    }
    if (const auto reduce = find_reduce_op(name)) return placed(fold(*reduce, at, false), false, at);
    reader_.fail_at(at, fmt::format("there is no operation '{}'", name));
  }

  ExprId fold(ReduceOp reduce, size_t at, bool is_scan) {
    std::vector<ExprId> operands;
    for (const Parsed& operand : arguments(';')) operands.push_back(settled(operand));
    if (is_scan ? !has_operands_of_scan(reduce, operands.size())
                : static_cast<int>(operands.size()) != arity_of(reduce))
      reader_.fail_at(at,
                      fmt::format("{} takes {} operands, not {}", name_of(reduce), arity_of(reduce), operands.size()));
    const std::vector<Symbol> axes = folded_axes();
    const int components = is_scan ? components_of_scan(reduce, operands.size()) : components_of(reduce);
    int component = 0;
    if (components > 1) {
      reader_.expect(".");
      component = static_cast<int>(reader_.integer());
      if (component < 0 || component >= components)
        reader_.fail_at(at, fmt::format("{} has no result {}", name_of(reduce), component));
    }
    if (!is_scan) return builder_.reduce(reduce, std::move(operands), axes, component);
    if (axes.size() != 1) reader_.fail_at(at, "a scan walks one axis");
    const bool reversed = reader_.accept("reversed");
    const int64_t first = reader_.accept("first") ? reader_.integer() : 0;
    return builder_.scan(reduce, std::move(operands), axes[0], reversed, component, first);
  }

  Parsed scan(size_t at) {
    const std::string name = reader_.name();
    const auto reduce = find_reduce_op(name);
    if (!reduce) reader_.fail_at(at, fmt::format("there is no fold '{}'", name));
    reader_.expect("(");
    return placed(fold(*reduce, at, true), false, at);
  }

  Parsed dot(size_t at) {
    std::vector<ExprId> operands;
    for (const Parsed& operand : arguments(';')) operands.push_back(settled(operand));
    if (operands.size() != 2) reader_.fail_at(at, "a dot has two operands");
    if (expr(operands[0]).dtype != expr(operands[1]).dtype)
      reader_.fail_at(at, fmt::format("a dot of {} and {}", kw::name_of(expr(operands[0]).dtype),
                                      kw::name_of(expr(operands[1]).dtype)));
    const std::vector<Symbol> axes = folded_axes();
    Precision precision = Precision::kFull;
    if (reader_.accept("precision")) {
      if (reader_.accept("tf32")) precision = Precision::kTf32;
      else if (reader_.accept("tf32x3")) precision = Precision::kTf32x3;
      else if (reader_.accept("bf16x6")) precision = Precision::kBf16x6;
      else if (!reader_.accept("full")) reader_.fail("expected a precision: full, tf32, tf32x3 or bf16x6");
    }
    return placed(builder_.dot(operands[0], operands[1], axes, precision), false, at);
  }

  // --- Accesses ---

  // Numbers and indices are i64 here; what data decide is an i32 or i64 beside them.
  Coordinate coordinate() {
    const Parsed value = expression();
    const Expr one = expr(value.id);
    if (is_floating(one.dtype) || one.dtype == DType::b1) reader_.fail_at(value.at, "a coordinate is a whole number");
    if (const auto pure = index_of(one)) return {*pure, kNoExpr};
    if (one.kind == ExprKind::kOp && (one.op == ScalarOp::kAdd || one.op == ScalarOp::kSub) && one.name.empty()) {
      if (const auto right = index_of(expr(one.operands[1])))
        return {one.op == ScalarOp::kAdd ? *right : *right * Index(-1), one.operands[0]};
      if (const auto left = index_of(expr(one.operands[0])); left && one.op == ScalarOp::kAdd)
        return {*left, one.operands[1]};
    }
    return {Index(0), value.id};
  }

  static std::optional<Index> index_of(const Expr& one) {
    if (one.kind == ExprKind::kIndex) return one.index;
    if (one.kind == ExprKind::kConstant && !is_floating(one.dtype)) return Index(one.integer);
    return std::nullopt;
  }

  Access access(int buffer) {
    Access result;
    result.buffer = buffer;
    const size_t at = reader_.position();
    reader_.expect("[");
    if (!reader_.accept("]")) {
      do result.coordinates.push_back(coordinate());
      while (reader_.accept(","));
      reader_.expect("]");
    }
    const Buffer& described = kernel().buffers[buffer];
    if (result.coordinates.size() != described.shape.size())
      reader_.fail_at(at, fmt::format("'{}' has {} dimensions, and here are {} coordinates", described.name,
                                      described.shape.size(), result.coordinates.size()));
    return result;
  }

  Parsed load(int buffer, size_t at) {
    Access access = this->access(buffer);
    if (kernel().buffers[buffer].role == BufferRole::kOutput)
      reader_.fail_at(at, fmt::format("'{}' is an output, and read", kernel().buffers[buffer].name));
    if (reader_.accept("where")) {
      access.mask = condition();
      if (reader_.accept("otherwise")) access.otherwise = reader_.number();
    }
    return placed(builder_.load(std::move(access)), false, at);
  }

  Parsed previous(int state, size_t at) {
    reader_.expect(".");
    reader_.expect("previous");
    std::vector<Index> coordinates = shape();
    if (coordinates.size() != kernel().states[state].axes.size())
      reader_.fail_at(at, fmt::format("'{}' has {} axes, and here are {} coordinates", kernel().states[state].name,
                                      kernel().states[state].axes.size(), coordinates.size()));
    return placed(builder_.previous(state, std::move(coordinates)), false, at);
  }

  TextReader reader_;
  Builder builder_;
  std::map<std::string, size_t> declared_;  // names, and where
  std::map<ExprId, size_t> expr_positions_;
  std::vector<size_t> store_positions_;  // [store]
  std::map<std::string, Symbol> symbols_;
  std::map<std::string, int> buffers_, states_;
  std::map<std::string, ExprId> locals_;
};

}  // namespace

Kernel parse_kernel(std::string_view text) { return Parser(text).run(); }

}  // namespace kw::kernel
