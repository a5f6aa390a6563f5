// What kernels printed from tile programs call: products of tiles, atomic folds, memory of a thread. Text, cut at the
// `//@` markers like vector_math.h.
//@ thread_scratch : inline
// Memory of one thread while it works on blocks.
struct ThreadScratch {
  explicit ThreadScratch(int64_t bytes) : start(static_cast<char*>(std::aligned_alloc(64, bytes))) {
    if (!start) std::abort();
  }
  ~ThreadScratch() { std::free(start); }
  ThreadScratch(const ThreadScratch&) = delete;
  template <typename T>
  T* array(int64_t offset) const {
    return reinterpret_cast<T*>(start + offset);
  }
  char* start;
};
//@ kept_scratch
// The same within a loop that threads share. It is kept for the next iteration: fresh memory costs its page faults.
struct KeptScratch {
  explicit KeptScratch(int64_t bytes) {
    static thread_local struct Memory {
      ~Memory() { std::free(start); }
      char* start = nullptr;
      int64_t bytes = 0;
    } memory;
    if (memory.bytes < bytes) {
      std::free(memory.start);
      memory.start = static_cast<char*>(std::aligned_alloc(64, bytes));
      memory.bytes = bytes;
      if (!memory.start) std::abort();
    }
    start = memory.start;
  }
  template <typename T>
  T* array(int64_t offset) const {
    return reinterpret_cast<T*>(start + offset);
  }
  char* start;
};
//@ round_to_tf32 : bits
// To 11 significant bits; halves away from zero.
INLINE float round_to_tf32(float value) {
  return value != value ? value : float_of_bits((bits_of_float(value) + 0x1000u) & 0xffffe000u);
}
//@ combine_atomically : inline
// *place = fold(*place, value), as one step for all threads.
template <typename T, typename Fold>
INLINE void combine_atomically(T* place, T value, const Fold& fold) {
  T before, after;
  __atomic_load(place, &before, __ATOMIC_RELAXED);
  do after = fold(before, value);
  while (!__atomic_compare_exchange(place, &before, &after, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}
//@ transpose_tile : inline
typedef float EightFloats __attribute__((vector_size(32)));
#if defined(__clang__)
#define KW_CHOOSE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t EightPlaces __attribute__((vector_size(32)));
#define KW_CHOOSE(a, b, ...) __builtin_shuffle(a, b, EightPlaces{__VA_ARGS__})
#endif

// Eight rows and eight columns.
template <typename Number>
INLINE void transpose_square(const Number* from, int64_t from_row, float* to, int64_t to_row) {
  EightFloats rows[8], pairs[8], fours[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    float numbers[8];
    for (int j = 0; j < 8; ++j) numbers[j] = static_cast<float>(from[i * from_row + j]);
    std::memcpy(&rows[i], numbers, sizeof(numbers));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = KW_CHOOSE(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = KW_CHOOSE(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      fours[i + 2 * j] = KW_CHOOSE(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = KW_CHOOSE(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const EightFloats first = KW_CHOOSE(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11),
                      second = KW_CHOOSE(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    std::memcpy(to + i * to_row, &first, sizeof(first));
    std::memcpy(to + (i + 4) * to_row, &second, sizeof(second));
  }
}

// to[column, row] = from[row, column]
template <typename Number>
INLINE void transpose_tile(const Number* from, int64_t from_row, float* to, int64_t to_row, int64_t rows,
                           int64_t columns) {
  const int64_t whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
  for (int64_t row = 0; row < whole_rows; row += 8)
    for (int64_t column = 0; column < whole_columns; column += 8)
      transpose_square(from + row * from_row + column, from_row, to + column * to_row + row, to_row);
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = column < whole_columns ? whole_rows : 0; row < rows; ++row)
      to[column * to_row + row] = static_cast<float>(from[row * from_row + column]);
}
//@ add_product : multiply_add
// Floats that one instruction works on.
#if defined(__AVX512F__)
constexpr int kVectorFloats = 16;
#elif defined(__AVX__)
constexpr int kVectorFloats = 8;
#else
constexpr int kVectorFloats = 4;
#endif

template <int kFloats>
struct VectorOf {
  typedef float Type __attribute__((vector_size(4 * kFloats)));
};

// Compilers make one instruction of each. A zero vector plus the number would be an addition: it turns -0 into 0.
template <int kFloats, typename Vector = typename VectorOf<kFloats>::Type>
INLINE Vector broadcast(float number) {
  Vector result;
  for (int at = 0; at < kFloats; ++at) result[at] = number;
  return result;
}
template <int kFloats, typename Vector = typename VectorOf<kFloats>::Type>
INLINE Vector multiply_add_vectors(Vector a, Vector b, Vector c) {
  Vector result;
  for (int at = 0; at < kFloats; ++at) result[at] = multiply_add(a[at], b[at], c[at]);
  return result;
}

// Rows and vectors of a block of a product whose sums stay in registers.
template <int kRows, int kVectors, int kFloats>
INLINE void add_product_block(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_depth,
                              float* sum, int64_t sum_row, int64_t depth) {
  using Vector = typename VectorOf<kFloats>::Type;
  Vector total[kRows][kVectors];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) std::memcpy(&total[row][i], sum + row * sum_row + i * kFloats, sizeof(Vector));
  for (int64_t k = 0; k < depth; ++k) {
    Vector right[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) std::memcpy(&right[i], b + k * b_depth + i * kFloats, sizeof(Vector));
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const Vector left = broadcast<kFloats>(a[row * a_row + k * a_depth]);
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) total[row][i] = multiply_add_vectors<kFloats>(left, right[i], total[row][i]);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) std::memcpy(sum + row * sum_row + i * kFloats, &total[row][i], sizeof(Vector));
}

// The columns of kVectors vectors, for all rows.
template <int64_t kRows, int64_t kDepth, int kVectors, int kFloats>
void add_product_columns(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_depth, float* sum,
                         int64_t sum_row) {
  constexpr int kBlockRows = kVectorFloats == 16 && kVectors < 3 ? 8 : 6;
  constexpr int kLeft = kRows % kBlockRows;
  for (int64_t row = 0; row + kBlockRows <= kRows; row += kBlockRows)
    add_product_block<kBlockRows, kVectors, kFloats>(a + row * a_row, a_row, a_depth, b, b_depth, sum + row * sum_row,
                                                     sum_row, kDepth);
  if constexpr (kLeft > 0)
    add_product_block<kLeft, kVectors, kFloats>(a + (kRows - kLeft) * a_row, a_row, a_depth, b, b_depth,
                                                sum + (kRows - kLeft) * sum_row, sum_row, kDepth);
}

// sum[row, column] += Σ a[row, k] · b[k, column]. Columns of b and sum are dense; the other strides are in elements.
template <int64_t kRows, int64_t kColumns, int64_t kDepth>
void add_product_part(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_depth, float* sum,
                      int64_t sum_row) {
  constexpr int kFloats = kColumns % kVectorFloats == 0 ? kVectorFloats
                          : kColumns % 4 == 0           ? 4
                          : kColumns % 2 == 0           ? 2
                                                        : 1;
  // With six rows, as many sums as registers hold beside their factors: there are 32 of AVX-512, and else 16.
  constexpr int kMost = kVectorFloats == 16 ? 4 : 2, kLeft = kColumns / kFloats % kMost;
  constexpr int64_t kWhole = kColumns - kLeft * kFloats;
  for (int64_t column = 0; column < kWhole; column += kMost * kFloats)
    add_product_columns<kRows, kDepth, kMost, kFloats>(a, a_row, a_depth, b + column, b_depth, sum + column, sum_row);
  if constexpr (kLeft > 0)
    add_product_columns<kRows, kDepth, kLeft, kFloats>(a, a_row, a_depth, b + kWhole, b_depth, sum + kWhole, sum_row);
}

// The same. A large b that few rows are multiplied by is read some rows at a time, each from end to end, so that it
// arrives ahead: down its columns every line would be waited for.
template <int64_t kRows, int64_t kColumns, int64_t kDepth>
void add_product(const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_depth, float* sum,
                 int64_t sum_row) {
  constexpr bool kReadsAhead = kRows <= 32 && kColumns * kDepth > 65536;
  constexpr int64_t kStep = kReadsAhead ? 16 : kDepth, kWhole = kDepth / kStep * kStep;
  for (int64_t k = 0; k < kWhole; k += kStep)
    add_product_part<kRows, kColumns, kStep>(a + k * a_depth, a_row, a_depth, b + k * b_depth, b_depth, sum, sum_row);
  if constexpr (kWhole < kDepth)
    add_product_part<kRows, kColumns, kDepth - kWhole>(a + kWhole * a_depth, a_row, a_depth, b + kWhole * b_depth,
                                                       b_depth, sum, sum_row);
}
