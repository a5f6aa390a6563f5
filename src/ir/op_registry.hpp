// What is known of each operator: its class, its names, its cost, the rule that its results follow, its formula where
// it works element by element, what the planner can make of it. One table, in op_rows.cpp.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.hpp"

namespace kw {

enum class OpClass {
  kPointwise,      // one element out of the broadcast elements in; copies and dtype conversions too
  kReduction,      // folds axes: sum, mean, amax, argmax, var, norm, any, logsumexp …
  kNormalisation,  // softmax family, layer, group, batch, instance and rms norm
  kView,           // the result aliases the first operand
  kDataMovement,   // copies by index: cat, pad, gather, index, flip, roll, scatter …
  kContraction,    // mm, bmm, addmm, linear, matmul, einsum …
  kConvolution,
  kAttention,
  kRecurrent,
  kPooling,  // windows, and resampling
  kScan,     // cumsum, cumprod, cummax …
  kRandom,   // takes numbers from the generator: order matters, never shared, never removed
  kFactory,  // no tensor operand decides its content: full, arange, zeros_like …
  kLoss,
  kOther,
};

// What the planner can make of a node, where shapes, dtypes and arguments allow (plan/op_table.hpp).
enum class Lowering {
  kLibrary,         // always a library call
  kAlias,           // a view, or a copy where strides cannot say it
  kElements,        // computed element by element
  kFill,            // made of its arguments, without reading a tensor
  kFold,            // folds axes
  kFoldOrElements,  // the one or the other, as its arguments say
  kCumulative,      // walks an axis in order and keeps what it meets
  kSort,            // orders an axis
  kScatter,         // writes where indices say
};

// How an operator's results follow from its arguments. `infer` reads it for their shapes and types, the planner for the
// operand's element behind a result's (plan/pull.cpp) and for what is folded (plan/reductions.cpp). Operators that
// differ only in name share one.
enum class OpRule {
  kNoRule,
  // Pointwise, of operands that broadcast. The result's type is
  kPromote,     // PyTorch's result_type
  kPower,       // the same
  kSquare,      // the same, with 2
  kFloating,    // the same where that is floating, otherwise the default type
  kQuotient,    // the first with a rounding mode, the second without
  kCompare,     // b1, of operands in their common type
  kLogical,     // b1, of truth values
  kFirst,       // the first operand's
  kRound,       // the same
  kMagnitude,   // the first operand's; of complex numbers it is real
  kCast,        // an argument, or another tensor's
  kKeep,        // the first operand's, and so is the shape
  kPerChannel,  // likewise; a vector has a number for each channel
  // Views and copies: a result's element is an operand's, and the arguments say which
  kSame,
  kReshape,
  kReshapeAs,
  kFlatten,
  kUnflatten,
  kSqueeze,
  kUnsqueeze,
  kExpand,
  kExpandAs,
  kPermute,
  kTranspose,
  kReverseAxes,
  kMatrixTranspose,
  kSlice,
  kNarrow,
  kSelect,
  kSplit,
  kUnbind,
  kMoveAxes,
  kDiagonal,
  kUnfold,
  kAsStrided,
  kFlip,
  kRepeat,
  kCat,
  kStack,
  kPad,
  kDiagEmbed,
  kIm2col,
  kSliceScatter,
  kSelectScatter,
  // and of these an index, or arithmetic on the place, looks it up
  kEmbedding,
  kIndexSelect,
  kGather,
  kIndex,
  kTake,
  kReflect,
  kReplicate,
  kWrapAround,
  kRoll,
  kNearest,
  kNearestExact,
  kLinear,
  kCubic,
  // Folds and scans
  kSum,
  kMean,
  kProd,
  kMax,
  kMin,
  kMaxAt,  // and where it stands
  kMinAt,
  kMinMax,
  kArgMax,
  kArgMin,
  kAny,
  kAll,
  kVar,
  kStd,
  kVarMean,
  kStdMean,
  kNorm,
  kLogSumExp,
  kCountNonzero,
  kSoftmax,
  kLogSoftmax,
  kSafeSoftmax,
  kLayerNorm,
  kGroupNorm,
  kBatchNorm,
  kInstanceNorm,
  kRmsNorm,
  kPairLoss,  // of `self` and `target`
  kMaxPool,
  kAdaptiveMax,
  kFractionalMax,
  kAveragePool,
  kAdaptiveAverage,
  kCol2im,
  kBag,
  kSorted,
  kTopK,
  // Scatters
  kScatterElements,
  kScatterSum,
  kScatterFold,
  kIndexSum,
  kIndexFold,
  kIndexPut,
  // Factories
  kZeros,
  kOnes,
  kFull,
  kScalarTensor,
  kArange,
  kLinspace,
  kEye,
  // Products, which are the library's or a scheduler's
  kProduct,
  kBatchedProduct,
  kAffine,
};

constexpr bool broadcasts_operands(OpRule rule) { return OpRule::kPromote <= rule && rule <= OpRule::kMagnitude; }
constexpr bool folds_axes(OpRule rule) { return OpRule::kSum <= rule && rule <= OpRule::kCountNonzero; }
constexpr bool normalises(OpRule rule) { return OpRule::kSoftmax <= rule && rule <= OpRule::kRmsNorm; }
constexpr bool moves_elements(OpRule rule) { return OpRule::kSame <= rule && rule <= OpRule::kCubic; }
// Each element of the first result is one of `self`.
constexpr bool picks_elements(OpRule rule) {
  return (OpRule::kSame <= rule && rule <= OpRule::kRepeat) ||
         (OpRule::kIndexSelect <= rule && rule <= OpRule::kNearestExact) ||
         (OpRule::kMax <= rule && rule <= OpRule::kMinAt) || rule == OpRule::kSorted || rule == OpRule::kTopK;
}
// Numbers that are added up or averaged, by positive weights: of what is not negative this is not either.
constexpr bool adds_up(OpRule rule) {
  return rule == OpRule::kSum || rule == OpRule::kMean || rule == OpRule::kAveragePool ||
         rule == OpRule::kAdaptiveAverage;
}
constexpr bool permutes_axes(OpRule rule) { return OpRule::kPermute <= rule && rule <= OpRule::kMatrixTranspose; }
// Views that the planner knows by their strides alone.
constexpr bool is_by_strides(OpRule rule) { return OpRule::kMoveAxes <= rule && rule <= OpRule::kAsStrided; }
constexpr bool is_lookup(OpRule rule) { return OpRule::kEmbedding <= rule && rule <= OpRule::kCubic; }
constexpr bool is_from_table(OpRule rule) { return OpRule::kEmbedding <= rule && rule <= OpRule::kTake; }

enum OpFlags : unsigned {
  kImpure = 1,             // may not be shared, removed when unused or moved
  kFloat8 = 2,             // takes 8-bit floats, which have no arithmetic in PyTorch: they are cast and moved
  kMayAlias = 4,           // its result is its operand, or a copy
  kWaits = 8,              // as a library call it may ask the device for a size, or copy to the host, before it goes on
  kRandomInTraining = 16,  // takes random numbers only where `train` or `training` says so
  kReplayed = 32,  // while PyTorch captures a CUDA graph, its kernels read the default generator's seed and offset from
                   // memory, and each replay moves the generator on: the numbers are those of separate launches
  kOwnMemory = 64,  // as a library call it never yields its operand or a view of it
  kSilent = 128,    // says nothing of what a kernel computes: its name is none of the kernel's
  // Of the first result, where it is of floats and no NaN:
  kNeverNegative = 256,  // never below +0, and never −0
  kAtMostOne = 512,
  kWhole = 1024,  // an integer or infinite
};

struct OpInfo {
  std::string_view name = {};  // "add", or with its overload where overloads differ: "max.dim"
  OpClass op_class = OpClass::kOther;
  double flops_per_element = 1;  // of the result for pointwise operators, of the operand for the others without a
                                 // formula
  Lowering lowering = Lowering::kLibrary;
  int arithmetic_weight = 4;  // of one element relative to an addition; 4 for what is not computed element by element
  OpRule rule = OpRule::kNoRule;
  std::string_view form = {};  // one element of the result as a formula of the arguments (plan/scalar_forms.hpp)
  unsigned flags = 0;
  std::string_view synonyms = {};  // that take the same arguments, separated by blanks
  std::string_view spoken = {};    // what people call it, where that is not its name without underscores around it
  std::string_view yields = {};    // what a kernel calls its result: "activated"; empty for plain arithmetic, which is
                                   // printed where it is used

  bool pure() const { return !(flags & kImpure); }
  bool takes_float8() const { return flags & kFloat8; }
};

// "aten.add.Tensor" → the row of "add.Tensor" or of "add". An unknown operator is kOther and impure.
const OpInfo& op_info(std::string_view op);
OpClass class_of(std::string_view op);
OpRule rule_of(const Node& node);
std::string_view name_of(OpClass op_class);  // "pointwise"

int spatial_axes(const OpInfo& info);  // of "max_pool2d" 2; 0 where the name says none

// "aten.add.Tensor" → "add". The namespace is dropped when it is aten, kept otherwise ("torchvision.nms").
std::string_view base_name(std::string_view op);
std::string_view base_name(const Node& node);

// May be merged with an equal node, removed when unused, and moved. Dropout outside training takes none and is pure.
bool is_pure(const Node& node);

double flops(const Graph& graph, const Node& node);        // multiply and add count as two
double bytes_moved(const Graph& graph, const Node& node);  // operands read once plus results written once; 0 for views

}  // namespace kw
