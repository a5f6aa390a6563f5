#include "plan/lookup_values.hpp"

#include <limits>

#include "ir/numbers.hpp"
#include "support/error.hpp"

namespace kw::plan {

namespace {

constexpr double kCubicA = -0.75;  // Keys' parameter, as PyTorch has it

struct Formula {
  GroupBuilder& k;
  const Lookup& lookup;
  DType whole = lookup.extent < std::numeric_limits<int32_t>::max() / 2 ? DType::i32 : DType::i64;
  DType work = lookup.work;

  ExprId position() const { return k.index(lookup.position, whole); }
  ExprId integer(int64_t value) const { return k.constant(whole, value); }
  ExprId number(double value) const { return k.constant(work, work == DType::f32 ? static_cast<float>(value) : value); }
  ExprId within(ExprId index) const {
    return k.op(ScalarOp::kMinimum, {k.op(ScalarOp::kMaximum, {index, integer(0)}), integer(lookup.extent - 1)});
  }

  // Position − shift, and where that leaves the tensor, from its other end.
  ExprId around() const {
    const ExprId shifted = k.sub(position(), integer(lookup.shift));
    const ExprId from_end = k.select(k.op(ScalarOp::kLess, {shifted, integer(0)}),
                                     k.add(shifted, integer(lookup.extent)), shifted);
    if (lookup.kind == LookupKind::kRolled) return from_end;
    return k.select(k.op(ScalarOp::kGreaterEqual, {shifted, integer(lookup.extent)}),
                    k.sub(shifted, integer(lookup.extent)), from_end);
  }

  // (n − 1) − |(n − 1) − |position − shift||
  ExprId reflected() const {
    const ExprId last = integer(lookup.extent - 1);
    const ExprId distance = k.op(ScalarOp::kAbs, {k.sub(position(), integer(lookup.shift))});
    return k.sub(last, k.op(ScalarOp::kAbs, {k.sub(last, distance)}));
  }

  // Of what is not negative: neither needs a look at signs.
  ExprId divided(ScalarOp op) const {
    const DType dtype = k.highest(lookup.position) < std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
    return k.cast(whole, k.op(op, {k.index(lookup.position, dtype), k.constant(dtype, lookup.shift)}));
  }

  // Positions and lengths are not negative, so that the quotient is rounded down.
  ExprId window_end(bool last) const {
    const int64_t length = lookup.extent - (last ? 1 : 0), windows = lookup.shift;
    const bool narrow = length * (windows + 1) < std::numeric_limits<int32_t>::max();
    const DType dtype = narrow ? whole : DType::i64;
    const ExprId scaled = k.mul(k.index(lookup.position, dtype), k.constant(dtype, length));
    const ExprId above = last ? k.add(scaled, k.constant(dtype, length + windows - 1)) : scaled;
    const ExprId bound = k.cast(whole, k.op(ScalarOp::kTruncDiv, {above, k.constant(dtype, windows)}));
    k.name(bound, last ? "window_end" : "window_start");
    return bound;
  }

  ExprId nearest() const {
    ExprId place = k.cast(work, position());
    if (lookup.kind == LookupKind::kNearestExact) place = k.add(place, number(0.5));
    const ExprId floor = k.cast(whole, k.op(ScalarOp::kFloor, {k.mul(place, number(lookup.scale))}));
    return k.op(ScalarOp::kMinimum, {floor, integer(lookup.extent - 1)});
  }

  // Where in the operand the result's element lies.
  ExprId source() const {
    const ExprId place = k.cast(work, position());
    if (lookup.aligned) return k.mul(number(lookup.scale), place);
    const ExprId source = k.sub(k.mul(number(lookup.scale), k.add(place, number(0.5))), number(0.5));
    return lookup.kind == LookupKind::kCubic ? source : k.op(ScalarOp::kFmax, {source, number(0.0)});  // positions
                                                                                                       // are no NaN
  }

  ExprId floor() const {
    const ExprId floor = k.op(ScalarOp::kFloor, {source()});
    k.name(floor, "before");
    return floor;
  }

  ExprId linear() const {
    const ExprId before = k.op(ScalarOp::kMinimum, {k.cast(whole, floor()), integer(lookup.extent - 1)});
    if (lookup.shift == 0) return before;
    return k.op(ScalarOp::kMinimum, {k.add(before, integer(1)), integer(lookup.extent - 1)});
  }

  ExprId cubic() const { return within(k.add(k.cast(whole, floor()), integer(lookup.shift - 1))); }

  // How far beyond the element before it.
  ExprId fraction() const {
    const ExprId before = lookup.kind == LookupKind::kLinear
                              ? k.op(ScalarOp::kFmin, {floor(), number(static_cast<double>(lookup.extent - 1))})
                              : floor();
    const ExprId fraction = k.sub(source(), before);
    const ExprId bounded = lookup.kind == LookupKind::kLinear ? k.op(ScalarOp::kFmin, {fraction, number(1.0)})
                                                              : fraction;
    k.name(bounded, "fraction");
    return bounded;
  }

  ExprId near_weight(ExprId x) const {  // ((A + 2)·x − (A + 3))·x² + 1
    const ExprId slope = k.sub(k.mul(number(kCubicA + 2), x), number(kCubicA + 3));
    return k.add(k.mul(k.mul(slope, x), x), number(1.0));
  }

  ExprId far_weight(ExprId x) const {  // ((A·x − 5A)·x + 8A)·x − 4A
    const ExprId inner = k.add(k.mul(k.sub(k.mul(number(kCubicA), x), number(5 * kCubicA)), x), number(8 * kCubicA));
    return k.sub(k.mul(inner, x), number(4 * kCubicA));
  }
};

}  // namespace

ExprId computed_coordinate(GroupBuilder& build, const Lookup& lookup) {
  const Formula formula{build, lookup};
  switch (lookup.kind) {
    case LookupKind::kRolled:
    case LookupKind::kAround: return formula.around();
    case LookupKind::kReflected: return formula.reflected();
    case LookupKind::kClamped: return formula.within(build.sub(formula.position(), formula.integer(lookup.shift)));
    case LookupKind::kQuotient: return formula.divided(ScalarOp::kTruncDiv);
    case LookupKind::kRemainder: return formula.divided(ScalarOp::kFmod);
    case LookupKind::kWindowStart: return formula.window_end(false);
    case LookupKind::kWindowEnd: return formula.window_end(true);
    case LookupKind::kNearest:
    case LookupKind::kNearestExact: return formula.nearest();
    case LookupKind::kLinear: return lookup.copies ? formula.position() : formula.linear();
    case LookupKind::kCubic: return formula.cubic();
    default: break;
  }
  fail_internal(__FILE__, __LINE__, "an element of an index tensor is loaded, not computed");
}

// ⌊(position + sample) · α⌋ − ⌊sample · α⌋ with α = (extent − 1) / (windows − 1), as PyTorch's own rounding and
// truncation have it; the last window ends with the axis.
ExprId fractional_start(GroupBuilder& build, const Lookup& lookup, ExprId sample) {
  const ExprId last = build.constant(DType::i32, lookup.extent - 1);
  if (lookup.shift == 1) return last;
  const DType dtype = compute_dtype(lookup.work);
  const auto held = [&](double value) { return as_double(number_in(lookup.work, value).value_or(value)); };
  const auto rounded = [&](ExprId value) { return build.cast(dtype, build.cast(lookup.work, value)); };
  const double quotient = held(static_cast<double>(lookup.extent - 1)) / held(static_cast<double>(lookup.shift - 1));
  const ExprId alpha = build.constant(dtype, held(quotient));
  const auto whole = [&](ExprId value) { return build.cast(DType::i32, rounded(build.mul(value, alpha))); };
  const ExprId position = build.index(lookup.position, DType::i32), first = build.cast(dtype, sample);
  const ExprId start = build.sub(whole(rounded(build.add(rounded(build.cast(dtype, position)), first))), whole(first));
  const ExprId within = build.op(ScalarOp::kMinimum,
                                 {build.op(ScalarOp::kMaximum, {start, build.constant(DType::i32, 0)}), last});
  const ExprId result = build.select(
      build.op(ScalarOp::kEqual, {position, build.constant(DType::i32, lookup.shift - 1)}), last, within);
  build.name(result, "window_start");
  return result;
}

ExprId weight_of_tap(GroupBuilder& build, const Lookup& tap) {
  const Formula formula{build, tap};
  if (tap.kind == LookupKind::kLinear) {
    if (tap.copies) return formula.number(tap.shift == 0 ? 1.0 : 0.0);
    const ExprId fraction = formula.fraction();
    return tap.shift == 1 ? fraction : build.sub(formula.number(1.0), fraction);
  }
  const ExprId beyond = formula.fraction(), before = build.sub(formula.number(1.0), beyond), one = formula.number(1.0);
  switch (tap.shift) {
    case 0: return formula.far_weight(build.add(beyond, one));
    case 1: return formula.near_weight(beyond);
    case 2: return formula.near_weight(before);
    default: return formula.far_weight(build.add(before, one));
  }
}

}  // namespace kw::plan
