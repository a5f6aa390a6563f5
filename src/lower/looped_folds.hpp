// Folds that are not one simple step an element, along loops: each lane keeps a few values, which the iterations carry,
// and the lanes meet when the loops are over.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lower/values.hpp"

namespace kw::lower {

// Moments (Welford 1962 in each lane; Chan, Golub and LeVeque 1983 among them), a maximum with the sum of exponentials
// below it (Milakov & Gimelshein 2018), both also of parts that were folded before, and the place of an extreme.
class LoopedFold {
 public:
  static bool fits(const kernel::Expr& fold) { return Values::is_place(fold) || Values::is_compound(fold); }

  // Before the loops. `first`: no walk over these axes comes before, so that this one goes forwards.
  LoopedFold(Values& values, kernel::ExprId fold, bool first);

  std::vector<tile::Value> kept;   // what loops carry
  std::vector<std::string> names;  // of that

  void advance();                     // by the points of one iteration
  std::vector<tile::Value> finish();  // behind the loops: [component]

 private:
  // How many points each lane has met so far.
  enum class Counted {
    kTogether,      // as many as any other
    kButForTheEnd,  // but for those that the last block leaves out, which the walk meets last
    kButForEnds,    // but for those that some blocks leave out
    kByLane,
  };
  Counted counted() const;
  std::vector<kernel::Symbol> padded_axes() const;
  bool keeps_first_place() const;
  tile::Index place() const;

  void add(const std::string& name, tile::Value value);
  tile::Value constant(double number);
  tile::Value where(tile::Value mask, tile::Value value, tile::Value otherwise, const std::string& name = "");
  tile::Value meets_last_block();  // of the one padded axis: is the lane within its last block?
  tile::Value count_in_all();      // of each lane
  // An operand, with what changes no fold by `reduce` beyond the end.
  tile::Value operand(size_t place, kernel::ReduceOp reduce);
  bool combines_moments() const { return fold_.reduce == kernel::ReduceOp::kCombineMoments; }
  bool folds_exponentials() const {
    return fold_.reduce == kernel::ReduceOp::kMaxSumExp || fold_.reduce == kernel::ReduceOp::kCombineMaxSumExp;
  }
  void start_moments();
  void start_place();
  void advance_moments();
  void advance_combined_moments();
  void advance_max_sum_exp();
  void advance_place();
  std::vector<tile::Value> finish_moments();
  std::vector<tile::Value> finish_combined_moments();
  double lanes_that_meet() const;
  tile::Value weighted_mean(tile::Value weight, double points);           // of the lanes' means
  std::vector<tile::Value> around(tile::Value mean, tile::Value counts);  // it, and all squared deviations from it
  std::vector<tile::Value> finish_max_sum_exp();
  std::vector<tile::Value> finish_place();

  Values& values_;
  Emission& emission_;
  const kernel::Expr& fold_;
  const std::vector<tile::Symbol> lanes_;
  const DType dtype_;  // of the operand
  bool first_;
  Counted counted_ = Counted::kTogether;
};

// [expression] The first fold of the same values over the same axes, of which it is another component; else itself.
std::vector<kernel::ExprId> first_siblings(const kernel::Kernel& kernel);

}  // namespace kw::lower
