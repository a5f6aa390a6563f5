// Sorting a row by calls, for kernels that want their rows in order. Text, cut at the `//@` markers like vector_math.h.
//@ sort_row
// From rows of this length on, digits cost less than the moves of an insertion.
constexpr int64_t kInsertUpTo = 24;

// What an element sorts by: unsigned whole numbers in PyTorch's order, NaN last, both zeros alike.
template <typename T>
struct OrderOf {
  using Key = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static Key of(T value) {
    constexpr Key kSign = Key(1) << (8 * sizeof(Key) - 1);
    if constexpr (std::is_floating_point_v<T>) {
      Key bits;
      std::memcpy(&bits, &value, sizeof bits);
      bits = value == 0 ? 0 : bits;
      bits ^= bits & kSign ? ~Key(0) : kSign;
      return value != value ? ~Key(0) : bits;
    }
    return std::is_signed_v<T> ? static_cast<Key>(value) ^ kSign : static_cast<Key>(value);
  }
};
template <uint32_t kInfinity>
struct NarrowFloatOrder {
  using Key = uint32_t;
  static Key of(uint16_t stored) {
    const uint32_t magnitude = stored & 0x7fffu, bits = magnitude == 0 ? 0 : stored;
    return magnitude > kInfinity ? 0xffffu : bits ^ (bits & 0x8000u ? 0xffffu : 0x8000u);
  }
};
using HalfOrder = NarrowFloatOrder<0x7c00>;
using Bfloat16Order = NarrowFloatOrder<0x7f80>;

// An element's order above its place, so that equals keep theirs.
struct NarrowRecord {
  uint64_t both;
  NarrowRecord() = default;
  NarrowRecord(uint32_t key, uint32_t place) : both(uint64_t(key) << 32 | place) {}
  uint32_t key() const { return both >> 32; }
  uint32_t place() const { return static_cast<uint32_t>(both); }
  bool operator<(const NarrowRecord& other) const { return both < other.both; }
};
struct WideRecord {
  uint64_t order, at;
  WideRecord() = default;
  WideRecord(uint64_t key, uint64_t place) : order(key), at(place) {}
  uint64_t key() const { return order; }
  uint64_t place() const { return at; }
  bool operator<(const WideRecord& other) const { return order != other.order ? order < other.order : at < other.at; }
};

// By digits of eight bits, the lowest first; digits that all have in common are left out. The result lies in either
// array.
template <typename Record>
Record* sort_by_digits(Record* records, Record* spare, int64_t count) {
  constexpr int kDigits = sizeof(records->key());
  uint32_t counts[kDigits][256] = {};
  for (int64_t i = 0; i < count; ++i)
    for (int digit = 0; digit < kDigits; ++digit) ++counts[digit][records[i].key() >> 8 * digit & 255];
  for (int digit = 0; digit < kDigits; ++digit) {
    if (counts[digit][records[0].key() >> 8 * digit & 255] == count) continue;
    uint32_t next[256], sum = 0;
    for (int value = 0; value < 256; ++value) next[value] = std::exchange(sum, sum + counts[digit][value]);
    for (int64_t i = 0; i < count; ++i) spare[next[records[i].key() >> 8 * digit & 255]++] = records[i];
    std::swap(records, spare);
  }
  return records;
}

template <typename Record>
Record* sort_records(Record* records, Record* spare, int64_t count) {
  if (count > kInsertUpTo) return sort_by_digits(records, spare, count);
  for (int64_t i = 1; i < count; ++i) {
    const Record record = records[i];
    int64_t at = i;
    for (; at > 0 && record < records[at - 1]; --at) records[at] = records[at - 1];
    records[at] = record;
  }
  return records;
}

// Elements that may be among the lowest: `take(i)` for each below `limit`, which it lowers. Most blocks have none.
template <typename Key, typename KeyAt, typename Take>
void for_each_below(const Key& limit, int64_t begin, int64_t count, KeyAt key_at, Take take) {
  constexpr int64_t kBlock = 32;
  for (; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    const Key highest = limit;
    int below = 0;
#pragma omp simd reduction(+ : below)
    for (int64_t i = begin; i < end; ++i) below += key_at(i) < highest;
    if (below == 0) continue;
    for (int64_t i = begin; i < end; ++i)
      if (key_at(i) < limit) take(i);
  }
}

// The few lowest of a row, each put in its place among those before it.
template <typename Record, typename KeyAt>
void insert_lowest(Record* records, int64_t count, int64_t first, KeyAt key_at) {
  const auto put = [&](const Record& record, int64_t at) {
    for (; at > 0 && record < records[at - 1]; --at) records[at] = records[at - 1];
    records[at] = record;
  };
  for (int64_t i = 0; i < first; ++i) put(Record(key_at(i), i), i);
  auto limit = records[first - 1].key();
  for_each_below(limit, first, count, key_at, [&](int64_t i) {
    put(Record(key_at(i), i), first - 1);
    limit = records[first - 1].key();
  });
}

// The lowest of a row in any order: twice as many are collected before the higher half is dropped.
template <typename Record, typename KeyAt>
void collect_lowest(Record* records, int64_t count, int64_t first, KeyAt key_at) {
  int64_t kept = 0;
  for (; kept < 2 * first; ++kept) records[kept] = Record(key_at(kept), kept);
  auto limit = records[0].key();
  const auto drop = [&] {
    std::nth_element(records, records + first - 1, records + kept);
    limit = records[first - 1].key();
    kept = first;
  };
  drop();
  for_each_below(limit, 2 * first, count, key_at, [&](int64_t i) {
    records[kept++] = Record(key_at(i), i);
    if (kept == 2 * first) drop();
  });
  if (kept > first) drop();
}

// The first of a row's elements in order and where they stood; either result may be left out.
template <typename Order, bool kDescending, typename T, typename Place>
void sort_row(const T* values, int64_t count, int64_t first, T* sorted, Place* places) {
  using Record = std::conditional_t<sizeof(typename Order::Key) == 8, WideRecord, NarrowRecord>;
  const auto key_at = [&](int64_t i) {
    return kDescending ? static_cast<typename Order::Key>(~Order::of(values[i])) : Order::of(values[i]);
  };
  static thread_local std::vector<Record> memory;
  if (static_cast<int64_t>(memory.size()) < 2 * count) memory.resize(2 * count);
  Record* records = memory.data();
  if (first <= kInsertUpTo && first < count) {
    insert_lowest(records, count, first, key_at);
  } else if (count >= 8 * first) {
    collect_lowest(records, count, first, key_at);
    records = sort_records(records, records + count, first);
  } else {
    for (int64_t i = 0; i < count; ++i) records[i] = Record(key_at(i), i);
    records = sort_records(records, records + count, count);
  }
  for (int64_t i = 0; sorted != nullptr && i < first; ++i) sorted[i] = values[records[i].place()];
  for (int64_t i = 0; places != nullptr && i < first; ++i) places[i] = static_cast<Place>(records[i].place());
}
