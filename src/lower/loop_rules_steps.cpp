#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "lower/fold_parts.hpp"
#include "lower/lane_bounds.hpp"
#include "lower/loop_rules.hpp"
#include "lower/loop_text.hpp"
#include "lower/loop_tree.hpp"
#include "lower/named_ends.hpp"
#include "lower/refused_stores.hpp"
#include "lower/sorted_rows.hpp"
#include "lower/walks.hpp"

namespace kw::lower {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::kNoValue;
using tile::Symbol;
using tile::Value;

// Where an instruction is in the program: directly in this body.
using BodyPointer = const std::vector<Instruction>*;

class StepChecker {
 public:
  StepChecker(const tile::Program& program, const LoopPlan& plan)
      : program_(program),
        plan_(plan),
        masks_(program),
        has_places_(!plan.places.empty()),
        made_(program.values.size()),
        made_in_(program.values.size()),
        declared_(program.values.size()),
        started_(plan.starts.size()),
        ended_(plan.named_ends.size()) {
    note_bodies(program.body);
  }

  void run() {
    check_block(plan_.body, &program_.body, {});
    bool refuses = false;
    for (const LoopStep& step : plan_.body) refuses = refuses || find_refused_stores(step).refuses;
    if (refuses && has_places_) check_refused(plan_.body, false, false);
    tile::for_each(program_.body, [&](const Instruction& one) { check_count(one); });
  }

 private:
  const std::string& name(Value value) const { return program_.values[value].name; }
  const std::string& name_of_lane(Symbol lane) const { return program_.symbols[lane].name; }
  const std::vector<Symbol>& lanes(Value value) const { return program_.values[value].type.lanes; }
  bool is_repeated(Value value) const { return plan_.is_repeated[value]; }
  bool is_repeated(const Instruction& one) const { return one.results.size() == 1 && is_repeated(one.results[0]); }
  // The loop over the lane around; none: nullptr.
  const LoopStep* loop_over(Symbol lane, const std::vector<const LoopStep*>& loops) const {
    for (const LoopStep* loop : loops)
      if (loop->lane == lane) return loop;
    return nullptr;
  }
  bool is_open(Symbol lane) const { return loop_over(lane, open_) != nullptr; }

  template <typename... Arguments>
  void require(bool holds, std::string_view rule, const Arguments&... arguments) const {
    if (!holds)
      throw BrokenLoopRule{fmt::vformat(rule, fmt::make_format_args(arguments...)),
                           at_ ? print_step(program_, *at_) : ""};
  }

  void note_bodies(const std::vector<Instruction>& body) {
    for (const Instruction& one : body) {
      bodies_[&one] = &body;
      note_bodies(one.body);
      note_bodies(one.otherwise_body);
    }
  }

  // --- Every instruction stands once ---

  void check_count(const Instruction& one) {
    at_ = nullptr;
    const std::string text = one.results.empty() ? "an instruction without results" : "'%" + name(one.results[0]) + "'";
    const int count = counts_[&one];
    if (is_repeated(one)) return require(one.kind != Kind::kConstant || count == 0, "{} is a constant in a loop", text);
    require(count > 0, "{} stands nowhere", text);
    require(count == 1, "{} stands {} times, and is not repeated", text, count);
    require(one.kind != Kind::kFold || begun_.count(&one) != 0, "{} is a fold that no loop begins", text);
    require(!is_simple_scan(one) || begun_.count(&one) != 0, "{} is a scan that no loop begins", text);
  }

  // --- Blocks, and what is declared in them ---

  // `yields`: what the body's owner takes at its end.
  void check_block(const std::vector<LoopStep>& steps, BodyPointer body, const std::vector<Value>& yields) {
    std::vector<Value> own;
    const std::vector<bool> started = started_, ended = ended_;
    for (const LoopStep& step : steps) {
      at_ = &step;
      for (Value value : step.declared) declare(value, own);
      check_starts(step);
      check_ends(step);
      if (step.instruction) check_instruction(step, body, own);
      else check_lane(step, body);
    }
    for (Value value : yields) use(value);
    for (Value value : own) declared_[value] = false;
    started_ = started;
    ended_ = ended;
  }

  // Where the loop ends is known before it.
  void check_ends(const LoopStep& step) {
    for (const int end : step.named_ends) {
      const std::string& lane = name_of_lane(plan_.named_ends[end].lane);
      check_known(plan_.named_ends[end].end, "the end of '" + lane + "'");
      ended_[end] = true;
    }
    if (step.end_name < 0) return;
    const NamedEnd& end = plan_.named_ends[step.end_name];
    require(ended_[step.end_name], "the loop's end is computed elsewhere");
    require(end.end == step.end && end.whole_vectors == step.whole_vectors,
            "the loop's end is named as another one is");
    require(end.points == points_until(program_, step.lane, end.end, end.whole_vectors),
            "the points of '{}' before its end are others", name_of_lane(step.lane));
  }

  // Are the symbols of the index those of loops around?
  void check_known(const tile::Index& index, const std::string& what) const {
    for (Symbol lane : tile::lanes_of(program_, index))
      require(is_open(lane), "{} is computed outside a loop over '{}'", what, name_of_lane(lane));
    std::vector<bool> used(program_.symbols.size());
    kernel::collect_symbols(index, used);
    for (size_t symbol = 0; symbol < used.size(); ++symbol)
      require(!used[symbol] || program_.symbols[symbol].kind != tile::SymbolKind::kLoop ||
                  std::count(variables_.begin(), variables_.end(), static_cast<Symbol>(symbol)) != 0,
              "{} is computed outside the loop of '{}'", what, program_.symbols[symbol].name);
  }

  // Starts are sums of what is known before the step. With what is left they are places.
  void check_starts(const LoopStep& step) {
    for (const int start : step.starts) {
      const PlaceStart& one = plan_.starts[start];
      require(one.after < 0 || started_[one.after], "'{}' is added to what is computed elsewhere", one.name);
      check_known(one.index, "'" + one.name + "'");
      started_[start] = true;
    }
    for (const LeftOfPlace& left : step.left) {
      const std::string& buffer = program_.buffers[left.access->buffer].name;
      require(started_[left.start], "a place in '{}' has a start that is computed elsewhere", buffer);
      tile::Index place = left.rest;
      for (int start = left.start; start >= 0; start = plan_.starts[start].after)
        place = place + plan_.starts[start].index;
      require(place == tile::offset_of(program_, *left.access), "a place in '{}' is not its start and what is left",
              buffer);
    }
  }

  void declare(Value value, std::vector<Value>& own) {
    require(!declared_[value], "'%{}' is declared where it is declared already", name(value));
    declared_[value] = true;
    own.push_back(value);
  }

  // What is made stands in an array or a variable that is there, or in a variable of its own from here on.
  void make(Value value, std::vector<Value>& own) {
    made_[value] = true;
    made_in_[value] = open_;
    if (!has_places_) return;
    const TilePlace& place = plan_.places[value];
    if (place.storage == kNoValue || place.home == Home::kWritten) return;
    for (Symbol lane : lanes(value))
      require(is_open(lane) || tile::has_lane(place.lanes, lane), "'%{}' is made outside a loop over '{}'", name(value),
              name_of_lane(lane));
    if (place.home == Home::kScratch || declared_[place.storage]) return;
    require(place.home == Home::kVariable, "'%{}' is in an array that is not declared", name(value));
    declare(place.storage, own);
  }

  void use(Value value) const {
    if (value == kNoValue || !has_places_) return;
    const TilePlace& place = plan_.places[value];
    if (place.home == Home::kWritten || place.home == Home::kMemory) return;
    require(made_[value], "'%{}' is used before it is made", name(value));
    require(place.home == Home::kScratch || declared_[place.storage], "'%{}' is used where it is not declared",
            name(value));
    for (Symbol lane : lanes(value)) {
      if (tile::has_lane(place.lanes, lane)) continue;
      require(is_open(lane), "'%{}' is used outside a loop over '{}'", name(value), name_of_lane(lane));
      require(loop_over(lane, made_in_[value]) == loop_over(lane, open_), "'%{}' is of another loop over '{}'",
              name(value), name_of_lane(lane));
    }
  }

  // --- Loops over lanes ---

  void check_lane(const LoopStep& loop, BodyPointer body) {
    const bool is_lane = loop.lane >= 0 && loop.lane < static_cast<Symbol>(program_.symbols.size()) &&
                         program_.symbols[loop.lane].kind == tile::SymbolKind::kLane;
    if (!is_lane) throw BrokenLoopRule{"a loop is over no lane", ""};
    require(!is_open(loop.lane), "a loop over '{}' is inside another one", name_of_lane(loop.lane));
    for (const auto* bounds : {&loop.begins, &loop.ends})
      for (const LaneBound& bound : *bounds) use(bound.value);
    for (const BegunFold& begun : loop.folds) check_fold(*begun.fold, loop);
    for (const BegunScan& begun : loop.scans) check_scan(begun, loop);
    check_runs(loop);
    const std::set<Value> known = known_;
    known_.insert(loop.known.begin(), loop.known.end());
    open_.push_back(&loop);
    check_block(loop.body, body, {});
    open_.pop_back();
    known_ = known;
    at_ = &loop;
    for (const BegunFold& begun : loop.folds) {
      const Instruction& fold = *begun.fold;
      require(counts_[&fold] == 1, "'%{}' begins before a loop that does not fold it", name(fold.results[0]));
      for (Value value : fold.results) made_[value] = true;
      check_parts(begun, loop);
    }
  }

  void check_fold(const Instruction& fold, const LoopStep& loop) {
    const std::string& result = name(fold.results[0]);
    require(fold.kind == Kind::kFold && tile::has_lane(fold.lanes, loop.lane),
            "'%{}' begins before a loop over another lane than it folds", result);
    require(kernel::step_of(fold.reduce).has_value(), "'%{}' is a fold by {}, which no loop does point by point",
            result, kernel::name_of(fold.reduce));
    require(begun_.insert(&fold).second, "'%{}' begins twice", result);
    for (Symbol lane : fold.lanes)
      require(!is_open(lane), "'%{}' begins inside a loop over '{}', which it folds", result, name_of_lane(lane));
  }

  // Iterations side by side do not meet in one variable; and of parts that are compared, NaN would be lost.
  void check_parts(const BegunFold& begun, const LoopStep& loop) const {
    const Instruction& fold = *begun.fold;
    const std::string& result = name(fold.results[0]);
    const std::vector<Symbol>& left = lanes(fold.results[0]);
    const bool in_variable = std::all_of(left.begin(), left.end(), [&](Symbol lane) { return is_open(lane); });
    const bool apart = !folds_along(fold) && in_variable && runs_apart(loop, fold);
    require(begun.in_parts || !apart, "'%{}' is one variable, and points that it folds are met side by side", result);
    require(apart || !begun.in_parts, "'%{}' is folded in parts, and nothing runs side by side", result);
    require(apart || loop.shared == 0 || !may_lose_nan(program_, fold),
            "threads combine '%{}' by comparisons, and nothing says whether NaN is met", result);
    const bool loses_nan = apart && may_lose_nan(program_, fold);
    require(begun.flags_nan || !loses_nan, "'%{}' is compared in parts, and nothing says whether NaN is met", result);
    require(loses_nan || !begun.flags_nan, "'%{}' flags NaN, which it does not lose", result);
  }

  void check_scan(const BegunScan& begun, const LoopStep& loop) {
    const Instruction& scan = *begun.scan;
    const std::string& result = name(scan.results[0]);
    require(is_simple_scan(scan) && scan.from == loop.lane, "'%{}' begins before a loop over another lane", result);
    require(scan.reversed == loop.reversed, "'%{}' goes the other way than its loop", result);
    require(begun_.insert(&scan).second, "'%{}' begins twice", result);
    std::vector<Symbol> rows;
    for (Symbol lane : lanes(scan.results[0]))
      if (scan.way != tile::ScanWay::kAfter && lane != scan.from && !is_open(lane)) rows.push_back(lane);
    require(begun.kept == rows, "what '%{}' has met is not kept of each row that is walked beside others", result);
    for (size_t i = tile::scanned_operands(scan); i < scan.operands.size(); ++i) use(scan.operands[i]);
  }

  void check_runs(const LoopStep& loop) const {
    require(loop.shared == 0 || (loop.shared == 1 && program_.symbols[loop.lane].shared),
            "threads share a lane that is not shared");
    const bool has_one = loop.body.size() == 1 && !loop.body[0].instruction && !loop.body[0].body.empty();
    const Instruction* first = has_one ? loop.body[0].body[0].instruction : nullptr;
    require(!loop.transposes || (first && first->kind == Kind::kLoad && loop.body[0].body.size() <= 2),
            "two loops that transpose do something else, too");
    for (const LoopStep& step : loop.body) {
      require(!loop.simd || step.instruction, "a loop whose iterations run side by side has a loop inside");
      const bool moves = step.instruction &&
                         (step.instruction->kind == Kind::kLoad || step.instruction->kind == Kind::kStore);
      require(!loop.moves || moves, "a loop that moves memory does something else, too");
    }
  }

  // --- Instructions ---

  void check_instruction(const LoopStep& step, BodyPointer body, std::vector<Value>& own) {
    const Instruction& one = *step.instruction;
    const auto found = bodies_.find(&one);
    if (found == bodies_.end()) throw BrokenLoopRule{"an instruction is not one of the program's", ""};
    require(found->second == body || is_repeated(one), "it stands in another body than in the program");
    check_order(one);
    ++counts_[&one];
    check_uses(one);
    check_shared(step);
    if (has_places_ && is_sort(one)) check_rows(one, step.rows);
    if (one.kind == Kind::kFor) {
      for (Value value : one.arguments) make(value, own);
      variables_.push_back(one.symbol);
      check_inside(step.body, &one.body, one.yields, step.known);
      variables_.pop_back();
    } else if (one.kind == Kind::kIf) {
      check_inside(step.body, &one.body, one.yields, step.known);
      check_inside(step.otherwise_body, &one.otherwise_body, one.otherwise_yields, step.known);
    }
    at_ = &step;
    for (Value value : one.results) {
      make(value, own);
      if (one.kind == Kind::kFold) made_[value] = false;  // until its loop is done
    }
  }

  // What a fold takes along at a point depends on what the points before have left.
  void check_order(const Instruction& one) const {
    if (!folds_along(one)) return;
    for (const LoopStep* loop : open_)
      require(!tile::has_lane(one.lanes, loop->lane) || (!loop->simd && loop->shared == 0),
              "'%{}' takes a value along a loop whose iterations run side by side", name(one.results[0]));
  }

  void check_inside(const std::vector<LoopStep>& steps, BodyPointer body, const std::vector<Value>& yields,
                    const std::set<Value>& more) {
    const std::set<Value> known = known_;
    known_.insert(more.begin(), more.end());
    check_block(steps, body, yields);
    known_ = known;
  }

  void check_uses(const Instruction& one) const {
    for_each_use(one, [&](Value value, Use use) {
      if (use != Use::kPoint) return;
      for (Symbol lane : lanes(value))
        require(is_open(lane) || (one.from == lane && (one.kind == Kind::kScan || one.kind == Kind::kUnstack)),
                "it reads '%{}' outside a loop over '{}'", name(value), name_of_lane(lane));
    });
    const bool has_body = one.kind == Kind::kFor || one.kind == Kind::kIf;  // whose yields are used at its end
    for (Value value : has_body ? one.operands : masks_.inputs_of(one, known_))
      if (!lies_in_memory(one, value)) use(value);
    if (has_body) use(one.until);
  }

  static bool is_sort(const Instruction& one) { return one.kind == Kind::kScan && kernel::is_sort(one.reduce); }

  // A sort may read its rows from where they are loaded.
  bool lies_in_memory(const Instruction& one, Value value) const { return is_sort(one) && is_repeated(value); }

  // Elements of a row are sorted where they lie side by side.
  void check_rows(const Instruction& sort, const SortedRows& rows) const {
    const Value row = sort.operands[0];
    require(!rows.load || (rows.load->results[0] == row && lies_in_rows(program_, *rows.load, sort.from)),
            "it reads '%{}' from where no load finds its rows", name(row));
    require(!rows.load || !tile::has_lane(plan_.places[row].lanes, sort.from), "it reads '%{}' past its array",
            name(row));
    for (const Value value : tiles_of_sort(plan_, sort, rows.load)) {
      const bool apart = stride_of(program_, plan_.places[value], sort.from) != 1;
      const bool is_copied = std::count(rows.copied.begin(), rows.copied.end(), value) != 0;
      require(apart == is_copied, "rows of '%{}' lie {}, and are {}", name(value), apart ? "apart" : "side by side",
              is_copied ? "copied" : "sorted in place");
    }
  }

  // `is_accepted`: no index can have been refused before. False where one may be in the steps.
  bool check_refused(const std::vector<LoopStep>& steps, bool in_loop, bool is_accepted) {
    const bool was_accepted = is_accepted;
    for (const LoopStep& step : steps) {
      at_ = &step;
      const RefusedStores found = find_refused_stores(step);
      const bool is_store = step.instruction && step.instruction->kind == Kind::kStore;
      const bool is_loop = !step.instruction || step.instruction->kind == Kind::kFor;
      require(!step.unless_refused || is_store || (in_loop && !step.body.empty() && !found.refuses),
              "no loop goes on instead of it behind a refused index");
      is_accepted = !found.refuses && (is_accepted || (step.unless_refused && !is_store));
      require(!is_store || !found.stores || is_accepted || step.unless_refused,
              "it stores where data say, behind an index that may be refused");
      is_accepted = check_refused(step.body, in_loop || is_loop, is_accepted);
      is_accepted = check_refused(step.otherwise_body, in_loop || is_loop, is_accepted);
    }
    return was_accepted && is_accepted;
  }

  void check_shared(const LoopStep& step) const {
    const bool is_loop = step.instruction->kind == Kind::kFor;
    require(step.shared == 0 || (is_loop && step.instruction->shared), "threads share what is no shared loop");
    const bool is_dot = step.instruction->kind == Kind::kDot;
    require(is_dot || step.product.way == Product::Way::kSums, "what is no dot is computed as one");
    require((step.product.column >= 0) == (step.product.way != Product::Way::kSums),
            "a dot has columns, but no lane of them, or the other way round");
    if (step.product.left == kNoValue) return check_threads(step);  // dots are not marked yet
    check_product(step);
    if (step.product.column < 0) return check_threads(step);
    for (Value operand : step.instruction->operands) {
      const Instruction* load = step.product.load;
      require(plan_.places[operand].home != Home::kMemory || (load && load->results[0] == operand),
              "'%{}' is read from memory, but the dot does not say by which load", name(operand));
    }
    check_threads(step);
  }

  // Each lane of the sum, and each that is summed over, is walked once.
  void check_product(const LoopStep& step) const {
    const Instruction& dot = *step.instruction;
    const Product& product = step.product;
    std::vector<Symbol> walked = product.loops, asked = plan_.places[dot.results[0]].lanes;
    for (const auto* run : {&product.rows, &product.columns, &product.depth})
      walked.insert(walked.end(), run->begin(), run->end());
    if (product.way == Product::Way::kColumns) walked.push_back(product.column);
    const bool in_memory = product.load != nullptr;
    for (Symbol lane : in_memory ? lanes(product.left) : plan_.places[product.left].lanes)
      if (!tile::has_lane(lanes(dot.results[0]), lane)) asked.push_back(lane);
    std::sort(walked.begin(), walked.end());
    std::sort(asked.begin(), asked.end());
    require(walked == asked, "the dot does not walk each of its lanes once");
    require(dot.operands[1] + dot.operands[2] == product.left + product.right &&
                (product.left == dot.operands[1] || product.left == dot.operands[2]),
            "the dot multiplies something else than its operands");
  }

  void check_threads(const LoopStep& step) const {
    if (step.shared <= 1) return;
    require(step.body.size() == 1 && step.body[0].shared == step.shared - 1,
            "threads share it with a loop that is not all it does");
  }

  const tile::Program& program_;
  const LoopPlan& plan_;
  const Masks masks_;
  const bool has_places_;
  std::vector<bool> made_;                             // [value]
  std::vector<std::vector<const LoopStep*>> made_in_;  // [value] the loops over lanes around
  std::vector<bool> declared_;                         // [value]
  std::vector<bool> started_;                          // [start]
  std::vector<bool> ended_;                            // [named end]
  std::map<const Instruction*, BodyPointer> bodies_;
  std::map<const Instruction*, int> counts_;
  std::set<const Instruction*> begun_;
  std::set<Value> known_;              // comparisons that hold here
  std::vector<const LoopStep*> open_;  // loops over lanes around
  std::vector<Symbol> variables_;      // of the others
  const LoopStep* at_ = nullptr;
};

}  // namespace

void check_steps(const tile::Program& program, const LoopPlan& plan) { StepChecker(program, plan).run(); }

}  // namespace kw::lower
