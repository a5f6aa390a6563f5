// Scalar operations whose rules are PyTorch's, not C++'s. Text, cut at the `//@` markers like vector_math.h.
//@ whole_vectors
// Loops over short rows run to whole vectors where the processor can leave out the lanes beyond the end.
constexpr int64_t whole_vectors(int64_t elements) {
#if defined(__AVX512F__)
  return (elements + 15) / 16 * 16;
#else
  return elements;
#endif
}
//@ maximum : inline
// NaN wins.
template <typename T>
INLINE T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
//@ minimum : inline
// NaN wins.
template <typename T>
INLINE T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
//@ log_add_exp : inline
// log(e^a + e^b). Two equal infinities stay; NaN wins.
template <typename T>
INLINE T log_add_exp(T a, T b) {
  const T largest = a > b || a != a ? a : b;
  return a == b ? a + T(0.6931471805599453) : largest + std::log1p(std::exp(-std::fabs(a - b)));
}
//@ larger_number : inline
// NaN loses.
template <typename T>
INLINE T larger_number(T a, T b) {
  return a > b || b != b ? a : b;
}
//@ smaller_number : inline
// NaN loses.
template <typename T>
INLINE T smaller_number(T a, T b) {
  return a < b || b != b ? a : b;
}
//@ sign : inline
template <typename T>
INLINE T sign(T a) {
  return static_cast<T>((a > T(0)) - (a < T(0)));
}
//@ truncating_quotient : inline
// Division by -1 wraps as PyTorch's does; division by zero, which PyTorch refuses, yields 0 instead of a trap.
template <typename T>
INLINE T truncating_quotient(T a, T b) {
  return b == 0 ? T(0) : (T(-1) < T(0) && b == T(-1) ? static_cast<T>(-a) : static_cast<T>(a / b));
}
//@ integer_modulo : inline
// The sign of the divisor.
template <typename T>
INLINE T integer_modulo(T a, T b) {
  const T rest = b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0) : static_cast<T>(a % b);
  return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
}
//@ integer_fmod : inline
// The sign of the dividend.
template <typename T>
INLINE T integer_fmod(T a, T b) {
  return b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0) : static_cast<T>(a % b);
}
//@ integer_floor_quotient : truncating_quotient integer_fmod
// From the truncated quotient: a minus its remainder could leave the type.
template <typename T>
INLINE T integer_floor_quotient(T a, T b) {
  const T quotient = truncating_quotient(a, b), rest = integer_fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(quotient - 1) : quotient;
}
//@ floating_modulo : inline
// The sign of the divisor.
template <typename T>
INLINE T floating_modulo(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != T(0) && (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}
//@ floating_floor_quotient : inline
// Exact where a/b is near an integer: floor((a - a mod b) / b), put right by rounding.
template <typename T>
INLINE T floating_floor_quotient(T a, T b) {
  const T rest = std::fmod(a, b);
  const T quotient = (a - rest) / b - (rest != T(0) && (b < T(0)) != (rest < T(0)) ? T(1) : T(0));
  const T floored = std::floor(quotient);
  const T rounded = quotient - floored > T(0.5) ? floored + T(1) : floored;
  return b == T(0) ? a / b : (quotient == T(0) ? std::copysign(T(0), a / b) : rounded);
}
//@ integer_power : inline
// Wraps on overflow; a negative exponent truncates 1/a^n.
template <typename T>
INLINE T integer_power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T(1) : (base == T(-1) ? (exponent % 2 != 0 ? T(-1) : T(1)) : T(0));
  T result = 1;
  for (; exponent != 0; exponent /= 2, base = static_cast<T>(base * base))
    if (exponent % 2 != 0) result = static_cast<T>(result * base);
  return result;
}
//@ shift_left : inline
// A shift by more than the width yields 0.
template <typename T>
INLINE T shift_left(T a, T count) {
  return count < 0 || count >= static_cast<T>(8 * sizeof(T)) ? T(0) : static_cast<T>(a << count);
}
//@ shift_right : inline
// A shift by more than the width leaves the sign.
template <typename T>
INLINE T shift_right(T a, T count) {
  const T last = static_cast<T>(8 * sizeof(T) - 1);
  return static_cast<T>(a >> (count < 0 || count > last ? last : count));
}
//@ bounded : inline
// An index that PyTorch would refuse is noted for the caller, and element 0 read in its place.
INLINE int64_t bounded(int64_t index, int64_t size, const int64_t*& refused) {
  if (static_cast<uint64_t>(index) < static_cast<uint64_t>(size)) return index;
  static int64_t noted[2];
  __atomic_store_n(&noted[0], index, __ATOMIC_RELAXED);
  __atomic_store_n(&noted[1], size, __ATOMIC_RELAXED);
  __atomic_store_n(&refused, static_cast<const int64_t*>(noted), __ATOMIC_RELAXED);
  return 0;
}
