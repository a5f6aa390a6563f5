// The values of a kernel's expressions in a tile program: each is computed once, in the outermost loop that has what it
// needs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lower/axes.hpp"
#include "lower/emission.hpp"
#include "lower/padding.hpp"

namespace kw::lower {

class LoopedScan;  // scans.hpp

// Throws kUser: the kernel's schedule cannot be kept.
[[noreturn]] void cannot_schedule(const kernel::Kernel& kernel, const std::string& what, const std::string& hint);

class Values {
 public:
  ~Values();
  Values(const kernel::Kernel& kernel, const KernelSchedule& schedule);

  using Axis = kernel::Symbol;
  using Lanes = std::vector<tile::Symbol>;

  const kernel::Kernel& kernel;
  Mapped mapped;
  Emission emission;
  const std::vector<std::vector<bool>> depends;  // [expression][kernel symbol]

  // Throws kUser: the schedule cannot be kept.
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = "") const;
  const std::string& name_of(Axis axis) const { return kernel.symbols[axis].name; }

  // --- Axes ---
  bool is_looped(Axis axis) const;
  bool folds_a_loop(const kernel::Expr& expr) const;
  bool folds_shared_row(const kernel::Expr& expr) const;  // of several blocks
  bool varies_in_loops(kernel::ExprId id) const;
  Lanes lanes_of(const std::vector<bool>& axes) const;  // [kernel symbol]
  Lanes lanes_of(const std::vector<Axis>& axes) const;
  std::vector<bool> operands_axes(const kernel::Expr& expr) const;
  // Holds where these axes have not reached their ends; kNoValue where all lanes are inside.
  tile::Value mask_of(const std::vector<Axis>& axes);
  tile::Value mask_of(const std::vector<bool>& axes);

  // --- Expressions ---
  tile::Value value_of(kernel::ExprId id);
  tile::Access translate(const kernel::Access& access, tile::Value mask);
  // Does the mask say no more than that the place lies within the buffer?
  bool says_within(const kernel::Access& access, kernel::ExprId mask) const;
  // Are the lanes beyond the ends of these axes those whose coordinates leave the buffer?
  bool leaves_with_its_axes(const kernel::Access& access, const std::vector<bool>& axes) const;
  // Loops' bodies see what is known outside, not the other way round.
  void open() { known_.emplace_back(); }
  void close() { known_.pop_back(); }
  bool is_known(kernel::ExprId id) const;
  void know(kernel::ExprId id, tile::Value value) { known_[emission.depth()][{id, whole_}] = value; }
  // What a state is before the step that the innermost loop over its axis is at.
  void set_state(int state, tile::Value value) { states_[state] = value; }
  tile::Value state(int state) const { return states_.at(state); }

  // --- Scans ---
  // Of the scans along this loop that these need and that are not known yet.
  std::vector<LoopedScan*> begin_scans(const std::vector<kernel::ExprId>& roots, const MappedLoop& loop);
  // What the schedule has of its axis and it cannot keep.
  void refuse_scan(kernel::ExprId scan) const;

  // --- Folds ---
  // Does it fold elements in any order, from an identity?
  static bool is_simple(const kernel::Expr& expr);
  static bool is_place(const kernel::Expr& expr);  // arg_max, arg_min
  // Moments, or a maximum with the sum of exponentials below it, of elements or of parts?
  static bool is_compound(const kernel::Expr& fold);
  tile::Value identity_tile(const tile::TileType& type, kernel::ReduceOp reduce);
  // What a fold takes from each lane: its operand, and its identity beyond the end of what it folds.
  tile::Value fold_operand(const kernel::Expr& expr);
  tile::Value fold_lanes(const kernel::Expr& expr, tile::Value operand, const std::string& name);
  // The operand, and its identity beyond the end of what is folded; `beyond`: what it is there, as far as that is
  // known.
  tile::Value masked(const kernel::Expr& expr, tile::Value operand, std::optional<double> beyond,
                     const std::string& name = "");
  // The operand of a fold over lanes, or over rows that blocks share, which may be wider than what is chosen.
  tile::Value masked_before_widening(const kernel::Expr& fold);
  std::optional<double> beyond(kernel::ExprId operand) const { return padding_.value(operand); }
  // A simple fold of the operand over the axes of this one, with its identity beyond their ends; and of lanes as they
  // are.
  tile::Value simple_fold(const kernel::Expr& fold, kernel::ReduceOp reduce, tile::Value operand,
                          std::optional<double> beyond, const std::string& name);
  tile::Value fold_lanes_of(const kernel::Expr& fold, kernel::ReduceOp reduce, tile::Value operand,
                            const std::string& name);
  double folded_points(const kernel::Expr& fold) const;  // refuses what is not known before run time
  std::string component_name(const kernel::Expr& fold, int component) const;
  // Is it a product of tiles: two operands with a side of their own each and one lane in common that is summed, all
  // long enough for tensor cores? Others are products and sums.
  bool is_tile_dot(const kernel::Expr& expr) const;
  tile::Value tile_dot(kernel::ExprId id, tile::Value total);  // total: kNoValue where it is the first
  // Does each iteration fold one point, which is there?
  bool folds_single_points(const kernel::Expr& expr) { return lanes_of(expr.axes).empty() && mask_of(expr.axes) < 0; }
  // total + one product of a dot, rounded once.
  tile::Value add_product(const kernel::Expr& expr, tile::Value total, const std::string& name);
  // What products are made of, and their sums, have axes' own lanes, also those that the schedule makes the last ones
  // of tiles, or splits, behind products. While one of these exists, lanes are whole.
  class WholeLanes {
   public:
    explicit WholeLanes(const Values& values)
        : values_(values), before_(std::exchange(values.whole_, values.has_last_)) {}
    ~WholeLanes() { values_.whole_ = before_; }
    WholeLanes(const WholeLanes&) = delete;
    WholeLanes& operator=(const WholeLanes&) = delete;

   private:
    const Values& values_;
    bool before_;
  };
  tile::Value behind_product(tile::Value value);  // with lanes as they are there
  void check_size(const tile::TileType& type, kernel::ExprId id) const;

 private:
  tile::Value compute(kernel::ExprId id);
  void refuse_what_cannot_be_last() const;
  bool is_last(const MappedAxis& axis) const { return axis.last >= 0 && !whole_; }
  tile::Value load(const kernel::Expr& expr);
  bool is_walked(const std::vector<bool>& axes) const;  // by a loop along one of them
  tile::Value scan(kernel::ExprId id);
  // The scan of which it is a component, or another name.
  kernel::ExprId first_scan_like(const kernel::Expr& scan) const;
  void collect_scans(kernel::ExprId id, Axis along, std::set<kernel::ExprId>& seen,
                     std::set<kernel::ExprId>& found) const;
  tile::Value state_value(const kernel::Expr& expr);
  // Folds of several results.
  tile::Value compound_fold(const kernel::Expr& fold);
  tile::Value moments(const kernel::Expr& fold);
  tile::Value max_sum_exp(const kernel::Expr& fold);
  tile::Value combined_moments(const kernel::Expr& fold);
  tile::Value combined_max_sum_exp(const kernel::Expr& fold);
  tile::Value masked_operand(const kernel::Expr& fold, size_t place, kernel::ReduceOp reduce);
  // 0 beyond the end of what a dot folds: 0 times what stands there might be NaN.
  tile::Value zero_beyond(const kernel::Expr& expr, tile::Value value);
  tile::Value dot(tile::Value total, tile::Value left, tile::Value right, tile::DotPrecision precision,
                  const std::string& name);

  tile::Program& program_;
  const Padding padding_;
  std::vector<std::map<std::pair<kernel::ExprId, bool>, tile::Value>> known_;  // [depth] of an expression, lanes whole
  bool has_last_ = false;  // does the schedule make some axis the last, behind products?
  mutable bool whole_ = false;
  std::map<int, tile::Value> states_;
  std::map<kernel::ExprId, std::unique_ptr<LoopedScan>> looped_scans_;
};

}  // namespace kw::lower
