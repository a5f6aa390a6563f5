#include "lower/operation_cost.hpp"

namespace kw::lower {

using kernel::ScalarOp;

int cost_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::kExp:
    case ScalarOp::kExp2:
    case ScalarOp::kExpm1:
    case ScalarOp::kLog:
    case ScalarOp::kLog2:
    case ScalarOp::kLog10:
    case ScalarOp::kLog1p:
    case ScalarOp::kTanh:
    case ScalarOp::kErf:
    case ScalarOp::kSigmoid: return 20;
    case ScalarOp::kSin:
    case ScalarOp::kCos:
    case ScalarOp::kPow: return 40;
    case ScalarOp::kTan:
    case ScalarOp::kAsin:
    case ScalarOp::kAcos:
    case ScalarOp::kAtan:
    case ScalarOp::kAtan2:
    case ScalarOp::kSinh:
    case ScalarOp::kCosh:
    case ScalarOp::kAsinh:
    case ScalarOp::kAcosh:
    case ScalarOp::kAtanh:
    case ScalarOp::kErfc:
    case ScalarOp::kFmod:
    case ScalarOp::kRemainder:
    case ScalarOp::kFloorDiv:
    case ScalarOp::kTruncDiv: return 100;  // scalar library calls
    case ScalarOp::kDiv:
    case ScalarOp::kSqrt:
    case ScalarOp::kRsqrt:
    case ScalarOp::kReciprocal: return 4;
    default: return 1;
  }
}

}  // namespace kw::lower
