// Prints one KernelIR kernel as a @triton.jit function. The walk over the body, axes and expressions is in
// kernel_printer.cpp, loads and stores in accesses.cpp; what Reduces become in reductions.cpp. Scans are no kernels of
// this form.
//
// A value's tile has the dimensions of tile_dimensions.hpp, of size 1 where the value does not vary; a value that
// varies along none is a scalar. So broadcasting never has to be spelled out.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "emit/kernel_ir.hpp"
#include "emit/triton/expressions.hpp"
#include "emit/triton/padding.hpp"
#include "emit/triton/tile_dimensions.hpp"

namespace kw::triton {

// Parameters that a launch fills in: BLOCK_ROW=64.
struct BlockConstant {
  std::string name;
  int64_t value;
};
std::vector<BlockConstant> block_constants(const kernel_ir::Kernel& kernel);

// Sizes of the launch grid, at most three, the first varying fastest.
std::vector<int64_t> grid_of(const kernel_ir::Kernel& kernel);

class KernelPrinter {
 public:
  explicit KernelPrinter(const kernel_ir::Kernel& kernel);
  std::string run();
  const std::set<std::string>& helpers() const { return helpers_; }

 private:
  // Lines of the function or of one loop. Indices and masks stand in them as marks until the scope is complete; then
  // those used twice get a name.
  struct Scope {
    std::vector<std::string> lines;
    std::vector<kernel_ir::ExprId> bound;
  };

  struct Mark {
    std::string text;
    std::vector<bool> axes;
    std::string buffer, name;
    bool is_index;
  };
  std::string mark_name(const Mark& mark);
  static std::string mark_text(size_t index) { return "\x01" + std::to_string(index) + "\x02"; }

  // Axes
  bool is_dimension(int axis) const { return dimensions_.has(axis); }
  bool is_fixed(int axis) const { return kernel_.axes[axis].block == 1 && kernel_.axes[axis].extent <= 1; }  // always 0
  bool is_loop_axis(int axis) const { return kernel_.axes[axis].looped; }
  std::string arange(int axis) const;
  std::string block_name(int axis) const;
  std::string block_start(int axis) const;                      // of a looped axis of the tile, within its loop
  std::string tile_shape(const std::vector<bool>& axes) const;  // "[BLOCK_ROW, 1]"
  std::vector<std::string> program_id_lines(const std::string& body) const;
  std::string wide(int axis, const std::string& text) const;

  // Indices, masks and accesses
  std::pair<kernel_ir::Index, kernel_ir::Index> split_index(const kernel_ir::Index& index) const;
  Text index_text(const kernel_ir::Index& index) const;
  std::string mark_of(const std::string& text, const std::vector<bool>& axes, const std::string& buffer, bool is_index);
  std::string index_mark(const kernel_ir::Index& index, const std::string& buffer);
  std::string mask_mark(const std::vector<std::string>& terms, const std::vector<bool>& axes,
                        const std::string& buffer);
  std::vector<std::string> guard_terms(const kernel_ir::Access& access) const;
  std::string pointer(const kernel_ir::Access& access, const std::vector<bool>& axes, kernel_ir::ExprId gathered);
  std::vector<std::string> overhang_terms(const std::vector<bool>& axes) const;  // which lanes lie within the axes'
                                                                                 // extents
  std::string access_mask(const kernel_ir::Access& access, const std::vector<bool>& axes, const std::string& condition);
  std::string load_text(kernel_ir::ExprId id);
  void find_what_decides();
  void find_what_is_known_to_the_bit();
  std::string stored_text(const kernel_ir::Store& store);
  void store(int index);

  // Expressions
  Text value_text(kernel_ir::ExprId id);  // its name where it has been computed, its text elsewhere
  Text computed_text(kernel_ir::ExprId id);
  Text operation(kernel_ir::ExprId id);
  Text held_index(kernel_ir::ExprId id, const std::vector<Text>& operands);
  void let(kernel_ir::ExprId id);
  void bind(kernel_ir::ExprId id);
  void hoist_long(kernel_ir::ExprId id, Text& text);

  // Reductions
  void start(const std::string& name, const std::string& value, DType dtype, const std::string& shape);
  void init(kernel_ir::ExprId id);
  void accumulate(kernel_ir::ExprId id);
  void finish(kernel_ir::ExprId id);
  void finish_moments(kernel_ir::ExprId id, const std::vector<std::string>& parts);
  void finish_max_sum_exp(kernel_ir::ExprId id, const std::vector<std::string>& parts);
  std::vector<std::string> accumulators(kernel_ir::ExprId id);
  std::string component_name(kernel_ir::ExprId id, int component);
  std::string operand_tile(kernel_ir::ExprId reduce, size_t position);       // padded lanes hold the identity
  std::string broadcast_operand(kernel_ir::ExprId reduce, size_t position);  // over the tile, which it does not vary
                                                                             // along by itself
  std::string where_valid(const std::string& text, const std::string& otherwise);
  std::string where_counted(kernel_ir::ExprId reduce, const std::string& text, const std::string& otherwise);
  bool yields_outside(kernel_ir::ExprId id, const std::vector<kernel_ir::Guard>& guards, double identity) const;
  std::string valid_mask();
  std::string full_tile(kernel_ir::ExprId reduce) const;
  std::string fold(const std::string& text, std::string_view function) const;  // tl.sum over the reduce axes of
                                                                               // the tile
  std::string fold_with(const std::string& text, const std::string& helper);   // tl.reduce over them
  void fold_at(kernel_ir::ExprId id, const std::string& value, const std::string& index);
  std::string position_text() const;
  int64_t reduced_elements() const;
  std::vector<int> folded_dimensions() const;  // of the tile, that reduce axes are
  bool folds() const;
  bool keeps_first_place(kernel_ir::ExprId id) const;
  struct LaneCounts {
    int axis;
    bool is_one;
    std::string in_last_block;
  };  // the axis, whether one loop counts, and which lanes the last block has
  std::optional<LaneCounts> lane_counts(kernel_ir::ExprId id) const;
  bool is_later_round(kernel_ir::ExprId id) const;
  int64_t folded_lanes() const;
  bool varies_along_reduce_tile(kernel_ir::ExprId id) const;

  // Names and lines
  std::string fresh(const std::string& wanted, const std::string& suffix);
  void line(const std::string& text) { scopes_.back().lines.push_back(text); }
  void body(const std::vector<kernel_ir::Stmt>& statements);
  void loop(const kernel_ir::Stmt& statement);
  kernel_ir::ExprId stop_of_loop(const kernel_ir::Stmt& statement, int axis) const;
  bool can_go_backwards() const;
  std::vector<std::string> close_scope(bool loop);

  const kernel_ir::Kernel& kernel_;
  std::vector<std::vector<bool>> axes_;
  Padding padding_;
  TileDimensions dimensions_;
  std::set<std::string> taken_, helpers_;
  std::vector<std::string> names_;  // [expr], empty: has none yet
  std::vector<std::string> axis_names_;
  std::map<std::string, std::string> derived_names_;  // accumulators and components that no expression stands for
  std::vector<bool> bound_;
  std::vector<int> loads_, loads_left_;          // [expr]: loops that read it, and that still will
  std::vector<kernel_ir::ExprId> cast_of_load_;  // [load]: the cast that is its only user, printed in its place
  std::vector<bool> wide_axis_;
  std::vector<bool> decides_;     // per expression: something that follows rounds it to whole steps
  std::vector<bool> to_the_bit_;  // per expression: its operators alone, each rounded as PyTorch's, say every bit of it
  bool roughly_ = false;
  bool backwards_ = false;  // the loop printed last goes from the end to the start
  std::vector<Scope> scopes_;
  std::vector<Mark> marks_;
};

}  // namespace kw::triton
