#include <fmt/format.h>

#include <algorithm>

#include "kernel/scalar_values.hpp"
#include "tile/box.hpp"
#include "tile/rules.hpp"

namespace kw::tile {
namespace {

using Lanes = std::vector<Symbol>;

bool same_lanes(Lanes left, Lanes right) {
  std::sort(left.begin(), left.end());
  std::sort(right.begin(), right.end());
  return left == right;
}

bool is_number_type(DType dtype) { return is_floating(dtype) || is_integral(dtype); }

// The rules of one instruction.
class InstructionRules {
 public:
  InstructionRules(const Program& program, const Instruction& instruction, const Surroundings& surroundings,
                   kernel::SymbolRanges ranges)
      : program_(program), at_(instruction), surroundings_(surroundings), ranges_(ranges) {}

  void check() const {
    switch (at_.kind) {
      case Kind::kDefine: return;  // its symbol's rules are declarations'
      case Kind::kConstant: return check_constant();
      case Kind::kIndex: return check_index();
      case Kind::kOp: return check_op();
      case Kind::kRelabel: return check_relabel();
      case Kind::kSplit: return check_split();
      case Kind::kStack: return check_stack();
      case Kind::kUnstack: return check_unstack();
      case Kind::kLoad: return check_load();
      case Kind::kStore: return check_store();
      case Kind::kCopy: return check_copy();
      case Kind::kWait: return check_wait();
      case Kind::kRelease:
      case Kind::kSkip: return check_counts(0, 0);
      case Kind::kMove: return check_move();
      case Kind::kDot: return check_dot();
      case Kind::kFold: return check_fold();
      case Kind::kScan: return check_scan();
      case Kind::kFor: return check_for();
      case Kind::kIf: return check_if();
      case Kind::kBarrier: return check_barrier();
    }
  }

 private:
  const TileType& type_of(Value value) const { return program_.values[value].type; }
  const TileType& operand(size_t i) const { return type_of(at_.operands[i]); }
  const TileType& result(size_t i = 0) const { return type_of(at_.results[i]); }
  const std::string& name_of_lane(Symbol lane) const { return program_.symbols[lane].name; }

  std::string lanes_text(const Lanes& lanes) const {
    std::string text;
    for (const Symbol lane : lanes) text += (text.empty() ? "" : ", ") + name_of_lane(lane);
    return "[" + text + "]";
  }

  void check_counts(size_t operands, size_t results) const {
    require(at_.operands.size() == operands, "{} operands, but {} are expected", at_.operands.size(), operands);
    require(at_.results.size() == results, "{} results, but {} are expected", at_.results.size(), results);
  }

  void check_dtype(const TileType& type, DType expected, std::string_view what) const {
    require(type.dtype == expected, "{} is of type {}, but {} is expected", what, kw::name_of(type.dtype),
            kw::name_of(expected));
  }

  void check_lanes(const TileType& type, const Lanes& expected, std::string_view what) const {
    require(type.lanes == expected, "{} has lanes {}, but {} are expected", what, lanes_text(type.lanes),
            lanes_text(expected));
  }

  // Does a result have the lanes of what it is made of? It may have those that end, too: a mask along them is gone.
  bool has_lanes_of(const Lanes& lanes) const {
    Lanes own = result().lanes;
    std::erase_if(own, [&](Symbol lane) { return !has_lane(lanes, lane) && has_end(surroundings_.ends, lane); });
    return same_lanes(own, lanes);
  }

  void check_lane(Symbol lane) const {
    require(program_.symbols[lane].kind == SymbolKind::kLane, "'{}' is no lane", program_.symbols[lane].name);
  }

  // --- Values from nothing ---

  void check_constant() const {
    check_counts(0, 1);
    const DType dtype = result().dtype;
    if (dtype == DType::b1) require(at_.integer == 0 || at_.integer == 1, "{} is no number of type b1", at_.integer);
    else if (is_integral(dtype))
      require(kernel::wrap_to(dtype, at_.integer) == at_.integer, "{} is no number of type {}", at_.integer,
              kw::name_of(dtype));
  }

  void check_index() const {
    check_counts(0, 1);
    const DType dtype = result().dtype;
    require(dtype == DType::i32 || dtype == DType::i64, "an index is of type i32 or i64, not {}", kw::name_of(dtype));
    const Lanes lanes = lanes_of(program_, at_.index);
    require(same_lanes(result().lanes, lanes), "the result has lanes {}, but the index varies along {}",
            lanes_text(result().lanes), lanes_text(lanes));
    const kernel::Interval range = range_of(at_.index, ranges_);
    require(dtype == DType::i64 || (range.low >= INT32_MIN && range.high <= INT32_MAX),
            "the index goes from {} to {}, beyond i32", range.low, range.high);
  }

  // --- Operations ---

  void check_op() const {
    check_counts(kernel::arity_of(at_.op), 1);
    check_op_types();
    Lanes all;
    for (size_t i = 0; i < at_.operands.size(); ++i)
      for (const Symbol lane : operand(i).lanes)
        if (!has_lane(all, lane)) all.push_back(lane);
    require(has_lanes_of(all), "the result has lanes {}, but its operands have {}", lanes_text(result().lanes),
            lanes_text(all));
    for (size_t i = 0; i < at_.operands.size(); ++i) {
      Lanes in_order;
      for (const Symbol lane : result().lanes)
        if (has_lane(operand(i).lanes, lane)) in_order.push_back(lane);
      require(operand(i).lanes == in_order, "operand {} has lanes {}, but the result has them in the order {}", i,
              lanes_text(operand(i).lanes), lanes_text(result().lanes));
    }
  }

  void check_shared_dtype(size_t first) const {
    for (size_t i = first + 1; i < at_.operands.size(); ++i)
      require(operand(i).dtype == operand(first).dtype, "operands are of types {} and {}",
              kw::name_of(operand(first).dtype), kw::name_of(operand(i).dtype));
  }

  enum class Domain { kAny, kNumbers, kReal, kWhole, kBits };

  static Domain domain_of(ScalarOp op) {
    using enum ScalarOp;
    switch (op) {
      case kAdd:
      case kSub:
      case kMul:
      case kFloorDiv:
      case kTruncDiv:
      case kRemainder:
      case kFmod:
      case kNeg:
      case kAbs:
      case kSign:
      case kMinimum:
      case kMaximum:
      case kFmin:
      case kFmax:
      case kPow: return Domain::kNumbers;
      case kShiftLeft:
      case kShiftRight:
      case kBounded: return Domain::kWhole;
      case kBitAnd:
      case kBitOr:
      case kBitXor:
      case kBitNot: return Domain::kBits;
      case kSelect:
      case kCast: return Domain::kAny;
      default: return kernel::is_predicate(op) ? Domain::kAny : Domain::kReal;
    }
  }

  void check_op_types() const {
    if (at_.op == ScalarOp::kCast) return;
    const bool selects = at_.op == ScalarOp::kSelect;
    if (selects) check_dtype(operand(0), DType::b1, "the condition");
    const bool mixed = at_.op == ScalarOp::kShiftLeft || at_.op == ScalarOp::kShiftRight ||
                       at_.op == ScalarOp::kBounded;
    if (!mixed) check_shared_dtype(selects ? 1 : 0);
    const Domain domain = domain_of(at_.op);
    for (size_t i = 0; i < at_.operands.size(); ++i) {
      const DType dtype = operand(i).dtype;
      const bool fits = domain == Domain::kAny || (domain == Domain::kNumbers && is_number_type(dtype)) ||
                        (domain == Domain::kReal && is_floating(dtype)) ||
                        (domain == Domain::kWhole && is_integral(dtype)) ||
                        (domain == Domain::kBits && (is_integral(dtype) || dtype == DType::b1));
      require(fits, "there is no {} of {}", kernel::name_of(at_.op), kw::name_of(dtype));
    }
    check_dtype(result(), kernel::is_predicate(at_.op) ? DType::b1 : operand(selects ? 1 : 0).dtype, "the result");
  }

  void check_relabel() const {
    check_counts(1, 1);
    check_lane(at_.from);
    check_lane(at_.to);
    require(has_lane(operand(0).lanes, at_.from), "the operand has no lane '{}'", name_of_lane(at_.from));
    require(!has_lane(operand(0).lanes, at_.to), "the operand has lane '{}' already", name_of_lane(at_.to));
    require(width_of(program_, at_.from) == width_of(program_, at_.to), "'{}' is {} wide, but '{}' is {}",
            name_of_lane(at_.from), width_of(program_, at_.from), name_of_lane(at_.to), width_of(program_, at_.to));
    Lanes expected = operand(0).lanes;
    std::replace(expected.begin(), expected.end(), at_.from, at_.to);
    require(same_lanes(result().lanes, expected), "the result has lanes {}, but {} are expected, in any order",
            lanes_text(result().lanes), lanes_text(expected));
    check_dtype(result(), operand(0).dtype, "the result");
  }

  void check_split() const {
    check_counts(1, 1);
    check_lane(at_.from);
    require(at_.lanes.size() == 2, "{} lanes are split off, but two are expected", at_.lanes.size());
    for (const Symbol lane : at_.lanes) {
      check_lane(lane);
      require(!has_lane(operand(0).lanes, lane), "the operand has lane '{}' already", name_of_lane(lane));
    }
    const auto found = std::find(operand(0).lanes.begin(), operand(0).lanes.end(), at_.from);
    require(found != operand(0).lanes.end(), "the operand has no lane '{}'", name_of_lane(at_.from));
    const int64_t whole = width_of(program_, at_.from), quotients = width_of(program_, at_.lanes[0]),
                  remainders = width_of(program_, at_.lanes[1]);
    require(quotients * remainders == whole, "'{}' is {} wide, but '{}' and '{}' are {} and {}", name_of_lane(at_.from),
            whole, name_of_lane(at_.lanes[0]), name_of_lane(at_.lanes[1]), quotients, remainders);
    Lanes expected = operand(0).lanes;
    expected[found - operand(0).lanes.begin()] = at_.lanes[0];
    expected.push_back(at_.lanes[1]);
    require(same_lanes(result().lanes, expected), "the result has lanes {}, but {} are expected, in any order",
            lanes_text(result().lanes), lanes_text(expected));
    check_dtype(result(), operand(0).dtype, "the result");
  }

  // Of a stacked tile and its parts: as many as the lane is wide, each of the tile's type without the lane.
  void check_parts(const TileType& stacked, Symbol lane, const std::vector<Value>& parts) const {
    check_lane(lane);
    require(!stacked.lanes.empty() && stacked.lanes.back() == lane, "'{}' is not the last lane of the stacked tile",
            name_of_lane(lane));
    require(static_cast<int64_t>(parts.size()) == width_of(program_, lane), "{} parts, but '{}' is {} wide",
            parts.size(), name_of_lane(lane), width_of(program_, lane));
    const Lanes others(stacked.lanes.begin(), stacked.lanes.end() - 1);
    for (const Value part : parts) {
      check_lanes(type_of(part), others, "a part");
      check_dtype(type_of(part), stacked.dtype, "a part");
    }
  }

  void check_stack() const {
    require(at_.results.size() == 1, "{} results, but one is expected", at_.results.size());
    check_parts(result(), at_.to, at_.operands);
  }

  void check_unstack() const {
    require(at_.operands.size() == 1, "{} operands, but one is expected", at_.operands.size());
    check_parts(operand(0), at_.from, at_.results);
  }

  // --- Memory ---

  const Buffer& buffer_of(const Access& access) const { return program_.buffers[access.buffer]; }

  void check_access(const Access& access) const {
    const Buffer& buffer = buffer_of(access);
    require(access.coordinates.size() == buffer.shape.size(), "buffer '{}' has {} dimensions, but {} coordinates",
            buffer.name, buffer.shape.size(), access.coordinates.size());
    for (const Coordinate& coordinate : access.coordinates)
      require(coordinate.value == kNoValue || is_integral(type_of(coordinate.value).dtype),
              "a coordinate is of type {}, not an integer",
              coordinate.value == kNoValue ? "" : kw::name_of(type_of(coordinate.value).dtype));
    if (access.mask != kNoValue) check_dtype(type_of(access.mask), DType::b1, "the mask");
    const bool may_leave = at_.kind != Kind::kCopy && at_.mode == CopyMode::kBulk;
    if (!may_leave) check_bounds(program_, access, surroundings_, ranges_);
  }

  void check_mode() const {
    require(at_.mode != CopyMode::kAsync, "loads and stores are plain or bulk");
    require(at_.mode == CopyMode::kPlain || box_of(program_, at_.access),
            "what is {} '{}' is no box that the bulk copy engine takes",
            at_.kind == Kind::kLoad ? "loaded from" : "stored to", buffer_of(at_.access).name);
    require(at_.mode == CopyMode::kPlain || at_.hint == Hint::kNone, "what is bulk has a hint, which it cannot follow");
  }

  void check_load() const {
    check_counts(0, 1);
    check_access(at_.access);
    require(!at_.access.any_otherwise || at_.mode == CopyMode::kPlain, "what is bulk yields 0 beyond its buffer");
    require(!at_.coherent || buffer_of(at_.access).role != BufferRole::kInput,
            "a coherent load of buffer '{}', an input that no block writes", buffer_of(at_.access).name);
    check_dtype(result(), buffer_of(at_.access).dtype, "the result");
    const Lanes lanes = lanes_of(program_, at_.access);
    require(has_lanes_of(lanes), "the result has lanes {}, but the access varies along {}", lanes_text(result().lanes),
            lanes_text(lanes));
    check_mode();
  }

  void check_written(const Access& access) const {
    const Buffer& buffer = buffer_of(access);
    require(buffer.role != BufferRole::kInput, "buffer '{}' is an input, and is not written", buffer.name);
  }

  void check_store() const {
    check_counts(1, 0);
    check_access(at_.access);
    check_written(at_.access);
    check_dtype(operand(0), buffer_of(at_.access).dtype, "what is stored");
    check_mode();
    require(at_.mode == CopyMode::kPlain || !at_.combines, "a bulk store does not combine");
    if (at_.in_order) check_order();
    require(at_.mode == CopyMode::kPlain || same_lanes(operand(0).lanes, lanes_of(program_, at_.access)),
            "a bulk store writes a whole tile");
    if (at_.combines) {
      const bool simple = at_.reduce == ReduceOp::kSum || at_.reduce == ReduceOp::kProd ||
                          at_.reduce == ReduceOp::kMax || at_.reduce == ReduceOp::kMin;
      require(simple, "stores combine by sum, prod, max or min, not by {}", kernel::name_of(at_.reduce));
      require(is_number_type(operand(0).dtype), "stores of {} do not combine", kw::name_of(operand(0).dtype));
      return;
    }
    const Lanes lanes = lanes_of(program_, at_.access);
    if (is_decided_by_data(at_.access)) return;  // where points meet
    for (const Symbol lane : operand(0).lanes)
      require(has_lane(lanes, lane), "the values along '{}' are stored to one element", name_of_lane(lane));
  }

  // Loops that are walked one iteration after the other tell points apart that may meet.
  void check_order() const {
    require(program_.grid.empty() && at_.mode == CopyMode::kPlain, "blocks and bulk stores store in no order");
    const Index place = offset_of(program_, at_.access);
    Lanes beside = operand(0).lanes;
    for (const Symbol lane : lanes_of(program_, at_.access)) beside.push_back(lane);
    for (const Instruction* loop : surroundings_.loops)
      if (loop->simd) beside.push_back(loop->symbol);
    for (const Symbol symbol : beside)
      require(kernel::uses(place, symbol), "points along '{}' may meet, and have no order", name_of_lane(symbol));
  }

  void check_copy() const {
    check_counts(0, 0);
    check_access(at_.access);
    check_access(at_.destination);
    const Buffer &source = buffer_of(at_.access), &destination = buffer_of(at_.destination);
    require(source.space == Space::kGlobal, "copies read global memory, but '{}' is on chip", source.name);
    require(destination.space == Space::kShared, "copies write shared memory, but '{}' is not there", destination.name);
    require(source.dtype == destination.dtype, "'{}' is of type {}, but '{}' of {}", source.name,
            kw::name_of(source.dtype), destination.name, kw::name_of(destination.dtype));
    require(at_.destination.mask == kNoValue, "the mask of a copy belongs to its source");
    require(at_.mode == CopyMode::kPlain || at_.access.otherwise == 0.0,
            "an asynchronous copy fills with 0 where its mask does not hold, not with {}", at_.access.otherwise);
    for (const Symbol lane : at_.lanes) check_lane(lane);
    const Lanes written = lanes_of(program_, at_.destination);
    require(same_lanes(written, at_.lanes), "the copy is over {}, but its destination varies along {}",
            lanes_text(at_.lanes), lanes_text(written));
    for (const Symbol lane : lanes_of(program_, at_.access))
      require(has_lane(at_.lanes, lane), "the source varies along '{}', which the copy is not over",
              name_of_lane(lane));
  }

  void check_wait() const {
    check_counts(at_.awaited == Awaited::kProduct ? 1 : 0, 0);
    require(at_.pending >= 0, "a wait that leaves {} under way", at_.pending);
  }

  void check_move() const {
    check_counts(1, 1);
    require(operand(0) == result(), "'{}' is moved, and of another type then", program_.values[at_.operands[0]].name);
    require(at_.layout != Layout::kFree, "a move that does not say where to");
  }

  void check_barrier() const {
    check_counts(0, 0);
    if (!at_.lanes.empty()) check_row();
    if (at_.access.buffer < 0) return;
    require(at_.scope == Scope::kGrid, "only a grid's barrier has a counter in memory");
    const Buffer& counter = buffer_of(at_.access);
    if (!at_.access.coordinates.empty()) check_access(at_.access);
    require(lanes_of(program_, at_.access).empty() && at_.access.mask == kNoValue,
            "a barrier has one counter, but this one varies along {}", lanes_text(lanes_of(program_, at_.access)));
    require(counter.dtype == DType::i32 && counter.space == Space::kGlobal && counter.role != BufferRole::kInput,
            "'{}' cannot count blocks: a counter is of i32, in global memory, and written to", counter.name);
  }

  // Blocks that wait for each other must all run. Those of a row are the next ones by their tickets, whatever else
  // runs: then no row waits for a block that cannot begin before that row is done.
  void check_row() const {
    require(at_.scope == Scope::kGrid, "only blocks of a grid share rows");
    require(at_.access.buffer >= 0, "the blocks of a row need a counter in memory to wait for each other");
    require(program_.tickets >= 0, "the blocks of a row wait for each other, but do not take tickets as they begin");
    require(!surroundings_.conditional, "the blocks of a row wait for each other where only some of them may go");
    const std::vector<Symbol>& grid = program_.grid;
    require(at_.lanes.size() <= grid.size() && std::equal(at_.lanes.rbegin(), at_.lanes.rend(), grid.rbegin()),
            "the blocks of a row are no neighbours: the dimensions that they share are not the last of the grid");
    require(program_.order.grouped < 0 && program_.consumers.count == 1,
            "the blocks of a row are no neighbours: they have an order of their own, or run as one");
    for (const Symbol symbol : at_.lanes)
      require(kernel::as_constant(program_.symbols[symbol].count).has_value(),
              "how many blocks share a row along '{}' is not known before run time", name_of_lane(symbol));
    for (const Coordinate& coordinate : at_.access.coordinates)
      for (const Symbol symbol : at_.lanes)
        require(!kernel::uses(coordinate.index, symbol), "the blocks of a row have several counters along '{}'",
                name_of_lane(symbol));
    require(at_.lanes == shared_rows(program_), "blocks share rows along other dimensions elsewhere");
  }

  // --- Folds ---

  void check_dot() const {
    check_counts(3, 1);
    const TileType &sum = operand(0), &a = operand(1), &b = operand(2);
    require(a.dtype == b.dtype, "operands are of types {} and {}", kw::name_of(a.dtype), kw::name_of(b.dtype));
    require(a.dtype != DType::b1, "there is no dot of b1");
    const DType wide = a.dtype == DType::f64 ? DType::f64 : DType::f32;
    const bool fits = is_integral(a.dtype) ? sum.dtype == DType::i32 || sum.dtype == DType::i64 : sum.dtype == wide;
    require(fits, "a dot of {} does not sum in {}", kw::name_of(a.dtype), kw::name_of(sum.dtype));
    require(at_.precision == DotPrecision::kIeee || a.dtype == DType::f32, "only dots of f32 have precision tf32");
    check_dtype(result(), sum.dtype, "the result");
    check_lanes(result(), sum.lanes, "the result");
    size_t contracted = 0;
    for (const Symbol lane : a.lanes) {
      if (has_lane(sum.lanes, lane)) continue;
      require(has_lane(b.lanes, lane), "lane '{}' is in one operand only, and not in the sum", name_of_lane(lane));
      ++contracted;
    }
    for (const Symbol lane : b.lanes)
      require(has_lane(sum.lanes, lane) || has_lane(a.lanes, lane),
              "lane '{}' is in one operand only, and not in the sum", name_of_lane(lane));
    require(contracted > 0, "no lane is summed over");
    for (const Symbol lane : sum.lanes)
      require(has_lane(a.lanes, lane) || has_lane(b.lanes, lane), "lane '{}' of the sum is in neither operand",
              name_of_lane(lane));
  }

  // The types of what a reduction yields.
  void check_reduced_types() const {
    using enum ReduceOp;
    const size_t reduced = scanned_operands(at_);
    if (kernel::takes_along(at_.reduce) && reduced == 2) return check_types_along();
    for (size_t i = 1; i < reduced; ++i) {
      require(operand(i).lanes == operand(0).lanes, "operands have lanes {} and {}", lanes_text(operand(0).lanes),
              lanes_text(operand(i).lanes));
      check_shared_dtype(0);
    }
    const DType dtype = operand(0).dtype;
    const std::string_view name = kernel::name_of(at_.reduce);
    if (at_.reduce == kArgMax || at_.reduce == kArgMin) {
      require(result().dtype == DType::i32 || result().dtype == DType::i64, "{} results in i32 or i64, not in {}", name,
              kw::name_of(result().dtype));
      return;
    }
    const bool logical = at_.reduce == kAny || at_.reduce == kAll;
    const bool sorts = kernel::is_sort(at_.reduce);
    const bool simple = at_.reduce == kSum || at_.reduce == kProd || at_.reduce == kMax || at_.reduce == kMin;
    const bool fits = logical ? dtype == DType::b1
                      : at_.reduce == kExtendedSum
                          ? dtype == DType::f64
                          : sorts || at_.reduce == kFirst || (simple ? is_number_type(dtype) : is_floating(dtype));
    require(fits, "there is no {} of {}", name, kw::name_of(dtype));
    for (size_t i = 0; i < at_.results.size(); ++i) check_dtype(result(i), dtype, "the result");
  }

  void check_types_along() const {
    require(operand(1).lanes == operand(0).lanes, "operands have lanes {} and {}", lanes_text(operand(0).lanes),
            lanes_text(operand(1).lanes));
    const DType place = operand(1).dtype;
    require(place == DType::i32 || place == DType::i64, "a {} comes along, but i32 or i64 does", kw::name_of(place));
    for (size_t i = 0; i < at_.results.size(); ++i) check_dtype(result(i), operand(i).dtype, "the result");
  }

  // Folds of several results that a kernel may name.
  void check_reduce() const {
    require(kernel::components_of(at_.reduce) == 1,
            "{} is of kernels only: a tile program has simple folds and operations in its place",
            kernel::name_of(at_.reduce));
  }

  // As many operands as a fold has, or one more that comes along; of a scan that goes on, twice as many.
  void check_counts_of_scan() const {
    const size_t times = at_.way == ScanWay::kAfter ? 2 : 1, scanned = scanned_operands(at_);
    const bool along = kernel::takes_along(at_.reduce) && scanned == 2;
    check_counts(times * (along ? 2 : kernel::arity_of(at_.reduce)),
                 times * kernel::components_of_scan(at_.reduce, scanned));
  }

  // What the walk met before, and what it has met in the end.
  void check_what_goes_on() const {
    const size_t scanned = scanned_operands(at_);
    require(kernel::step_of(at_.reduce).has_value(), "a {} goes on from nothing", kernel::name_of(at_.reduce));
    Lanes left = operand(0).lanes;
    std::erase(left, at_.from);
    for (size_t i = scanned; i < at_.operands.size(); ++i) {
      check_lanes(operand(i), left, "what was met before");
      check_dtype(operand(i), operand(i - scanned).dtype, "what was met before");
      check_lanes(result(i), left, "what is met in the end");
      check_dtype(result(i), operand(i).dtype, "what is met in the end");
    }
  }

  void check_fold() const {
    using enum ReduceOp;
    check_reduce();
    require(at_.reduce != kFirst && !kernel::is_sort(at_.reduce), "{} is of scans only", kernel::name_of(at_.reduce));
    check_counts_of_scan();
    require(!at_.lanes.empty(), "a fold over no lane");
    for (size_t i = 0; i < at_.lanes.size(); ++i) {
      require(has_lane(operand(0).lanes, at_.lanes[i]), "the operand has no lane '{}'",
              program_.symbols[at_.lanes[i]].name);
      require(std::count(at_.lanes.begin(), at_.lanes.end(), at_.lanes[i]) == 1, "lane '{}' is folded twice",
              name_of_lane(at_.lanes[i]));
    }
    check_reduced_types();
    Lanes left;
    for (const Symbol lane : operand(0).lanes)
      if (!has_lane(at_.lanes, lane)) left.push_back(lane);
    for (size_t i = 0; i < at_.results.size(); ++i) check_lanes(result(i), left, "the result");
  }

  void check_scan() const {
    check_reduce();
    require(at_.reduce != ReduceOp::kExtendedSum, "{} is of folds only", kernel::name_of(at_.reduce));
    check_counts_of_scan();
    require(has_lane(operand(0).lanes, at_.from), "the operand has no lane '{}'", program_.symbols[at_.from].name);
    check_reduced_types();
    for (size_t i = 0; i < scanned_operands(at_); ++i) check_lanes(result(i), operand(0).lanes, "the result");
    if (at_.way == ScanWay::kAfter) check_what_goes_on();
  }

  // --- Control ---

  void check_for() const {
    require(program_.symbols[at_.symbol].kind == SymbolKind::kLoop, "'{}' is no loop variable",
            program_.symbols[at_.symbol].name);
    require(at_.step >= 1, "the step is {}", at_.step);
    require(at_.stages >= 0, "the number of stages is {}", at_.stages);
    const auto first = kernel::as_constant(at_.begin), end = kernel::as_constant(at_.end);
    require(!at_.unrolled || (first && end && at_.stages == 0 && (*end - *first) / at_.step <= kMostUnrolled),
            "the loop cannot be unrolled: it has stages, or is not known to have {} iterations at most", kMostUnrolled);
    if (at_.until != kNoValue) {
      const TileType& until = type_of(at_.until);
      require(until.lanes.empty() && (until.dtype == DType::i32 || until.dtype == DType::i64),
              "the loop runs until what is no whole number of the block");
      require(!at_.reversed && !at_.unrolled, "a loop that a value ends is neither reversed nor unrolled");
    }
    require((!at_.shared && !at_.simd) || at_.arguments.empty(),
            "the iterations of the loop are done in any order, but carry values");
    for (const Index* bound : {&at_.begin, &at_.end})
      require(lanes_of(program_, *bound).empty(), "a bound of the loop varies along {}",
              lanes_text(lanes_of(program_, *bound)));
    const kernel::SymbolRange known = ranges_[at_.symbol], least = loop_range(at_.begin, at_.end, at_.step, ranges_);
    require(known.low <= least.low && known.high >= least.high && least.divisor % known.divisor == 0,
            "the range of '{}' does not hold all its values", program_.symbols[at_.symbol].name);
    const size_t carried = at_.arguments.size();
    require(at_.operands.size() == carried && at_.results.size() == carried,
            "the loop carries {} values, but has {} at the beginning and {} results", carried, at_.operands.size(),
            at_.results.size());
    for (size_t i = 0; i < carried; ++i)
      require(operand(i) == type_of(at_.arguments[i]) && result(i) == operand(i),
              "carried value '%{}' has other types at the beginning or the end",
              program_.values[at_.arguments[i]].name);
  }

  void check_if() const {
    require(at_.operands.size() == 1, "{} conditions", at_.operands.size());
    check_dtype(operand(0), DType::b1, "the condition");
    require(operand(0).lanes.empty(), "the condition has lanes {}, but is one value of a block",
            lanes_text(operand(0).lanes));
  }

  const Program& program_;
  const Instruction& at_;
  const Surroundings& surroundings_;
  kernel::SymbolRanges ranges_;
};

}  // namespace

void check_instruction(const Program& program, const Instruction& instruction, const Surroundings& surroundings,
                       kernel::SymbolRanges ranges) {
  InstructionRules(program, instruction, surroundings, ranges).check();
}

}  // namespace kw::tile
