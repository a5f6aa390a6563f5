// Sorts: each row by a call (sort_rows.h).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "emit/cpu/tile_accesses.hpp"
#include "emit/cpu/tile_context.hpp"
#include "emit/cpu/tile_printer.hpp"

namespace kw::cpu {

using tile::Instruction;
using tile::Symbol;
using tile::Value;

namespace {

constexpr size_t kLongestCall = 120;
constexpr int64_t kLongestCopied = 4096;

bool is_used(const TileContext& at, Value value) { return at.text.place(value).storage != tile::kNoValue; }

// A row of a tile in an array, or a copy of it.
class Row {
 public:
  Row(TileContext& at, Value value, const lower::LoopStep& sort)
      : at_(at), value_(value), along_(sort.instruction->from) {
    const std::vector<Value>& copied = sort.rows.copied;
    if (std::find(copied.begin(), copied.end(), value) == copied.end()) return;
    if (at.text.width(along_) > kLongestCopied) refuse_tile(at.text.program(), "a sort of long rows that lie apart");
    copy_ = at.text.fresh(at.text.own_name(value) + "_row");
    at.out.line(fmt::format("{} {}[{}];", at.text.held_type(value), copy_, at.text.width(along_)));
  }
  std::string start() const {
    if (!copy_.empty()) return copy_;
    const std::string place = at_.text.element_index(value_, {{along_, "0"}});
    return at_.text.name(value_) + (place.empty() || place == "0" ? "" : " + " + place);
  }
  void take() const { copy(copy_ + "[" + at_.text.symbol(along_) + "]", at_.text.element(value_).text); }
  void give() const { copy(at_.text.element(value_).text, copy_ + "[" + at_.text.symbol(along_) + "]"); }

 private:
  void copy(const std::string& to, const std::string& from) const {
    if (copy_.empty()) return;
    at_.open_loop(along_);
    at_.out.line(to + " = " + from + ";");
    at_.close_loop();
  }

  TileContext& at_;
  Value value_;
  Symbol along_;
  std::string copy_;
};

}  // namespace

void print_sort(TileContext& at, TileAccesses& accesses, const lower::LoopStep& step) {
  const Instruction& sort = *step.instruction;
  const bool has_places = step.rows.takes_places;
  if (sort.operands.size() > 1 && !has_places)
    refuse_tile(at.text.program(), "a sort that takes something else along than places");
  const Value sorted = sort.results[0];
  const DType dtype = at.text.type(sorted).dtype;
  const bool is_bits = is_narrow_float(dtype) && at.text.held(sorted) == dtype;
  const std::string type = is_bits || !is_narrow_float(dtype) ? storage_type(dtype) : "float";
  const std::string order = is_bits && dtype == DType::f16    ? "HalfOrder"
                            : is_bits && dtype == DType::bf16 ? "Bfloat16Order"
                                                              : "OrderOf<" + type + ">";
  const auto bytes = [&](const std::string& row, const std::string& kind) {
    return dtype == DType::b1 ? fmt::format("reinterpret_cast<{}*>({})", kind, row) : row;
  };
  const std::string count = std::to_string(at.text.width(sort.from));
  std::optional<Row> source, in_order, places;
  std::string values;
  if (step.rows.load) values = accesses.first(step.rows.load->access, {sort.from});
  else source.emplace(at, sort.operands[0], step), source->take(), values = source->start();
  if (is_used(at, sorted)) in_order.emplace(at, sorted, step);
  if (has_places && is_used(at, sort.results[1])) places.emplace(at, sort.results[1], step);
  const std::string to = in_order ? bytes(in_order->start(), type) : "nullptr";
  at.text.helpers().insert("sort_row");
  const std::string call = fmt::format("sort_row<{}, {}, {}, {}>(", order, sort.reduce == kernel::ReduceOp::kSortDown,
                                       type,
                                       has_places ? storage_type(at.text.type(sort.results[1]).dtype) : "int32_t");
  const std::string arguments = fmt::format("{}, {}, {}, {}, {});", bytes(values, "const " + type), count,
                                            sort.integer == 0 ? count : std::to_string(sort.integer), to,
                                            places ? places->start() : "nullptr");
  const bool is_long = call.size() + arguments.size() > kLongestCall;
  at.out.line(is_long ? call : call + arguments);
  if (is_long) at.out.line("    " + arguments);
  if (in_order) in_order->give();
  if (places) places->give();
}

}  // namespace kw::cpu
