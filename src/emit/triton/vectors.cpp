#include "emit/triton/vectors.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace kw::triton {

using namespace kernel_ir;

namespace {

constexpr int64_t kLoadLength = 4;
constexpr int kMostDimensions = 2;  // of a tile that four_of() and together() take apart and put together

int64_t remainder(int64_t value, int64_t divisor) { return ((value % divisor) + divisor) % divisor; }

void append(std::string& key, const Index& index, int64_t constant) {
  key += '[' + std::to_string(constant);
  for (const IndexTerm& term : index.terms)
    for (int64_t number : {static_cast<int64_t>(term.axis), term.coefficient, term.divisor, term.modulus})
      key += ',' + std::to_string(number);
  key += ']';
}

class VectorFinder {
 public:
  VectorFinder(const Kernel& kernel, const TileDimensions& dimensions) : kernel_(kernel) {
    found_.of_expr.assign(kernel.exprs.size(), -1);
    found_.of_store.assign(kernel.stores.size(), -1);
    for (size_t axis = 0; axis < kernel.axes.size(); ++axis)
      if (dimensions.of_axis[axis] == dimensions.count - 1 && dimensions.count > 0 &&
          dimensions.count <= kMostDimensions)
        lane_ = static_cast<int>(axis);
  }

  Vectors run() {
    const bool loops = std::any_of(kernel_.axes.begin(), kernel_.axes.end(), is_serial);
    if (lane_ >= 0 && !loops) {
      find_loads();
      find_stores();
    }
    return std::move(found_);
  }

 private:
  // 0 where the index does not go along the lanes in equal steps.
  int64_t step(const Index& index) const {
    int64_t step = 0;
    for (const IndexTerm& term : index.terms) {
      if (term.axis != lane_) continue;
      if (step != 0 || term.divisor != 1 || term.modulus != 0) return 0;
      step = term.coefficient;
    }
    return step;
  }

  bool along_lanes(const Index& index) const {
    return std::any_of(index.terms.begin(), index.terms.end(),
                       [&](const IndexTerm& term) { return term.axis == lane_; });
  }

  // What accesses of one vector have in common, `place` being how far each lies behind the first.
  std::string key_of(const Access& access, int64_t place) const {
    std::string key = std::to_string(access.buffer) + ' ' + std::to_string(access.otherwise);
    append(key, access.index, access.index.constant - place);
    for (const Guard& guard : access.guards) {
      append(key, guard.index, guard.index.constant - (along_lanes(guard.index) ? place : 0));
      key += std::to_string(guard.lower) + ':' + std::to_string(guard.upper);
    }
    return key;
  }

  Vector start(const Access& access, int64_t place, int64_t length) const {
    Vector vector{access, {}, std::vector<int>(static_cast<size_t>(length), -1)};
    vector.first.index.constant -= place;
    for (Guard& guard : vector.first.guards) {
      vector.moving.push_back(along_lanes(guard.index));
      if (vector.moving.back()) guard.index.constant -= place;
    }
    return vector;
  }

  void find_loads() {
    std::map<std::pair<std::string, int>, size_t> places;
    std::vector<Vector> candidates;
    for (size_t id = 0; id < kernel_.exprs.size(); ++id) {
      const Expr& expr = kernel_.exprs[id];
      if (expr.kind != ExprKind::kLoad || !kernel_.buffers[expr.access.buffer].aligned) continue;
      const auto& terms = expr.access.index.terms;
      const bool aligned = std::all_of(terms.begin(), terms.end(),
                                       [](const IndexTerm& term) { return term.coefficient % kLoadLength == 0; });
      if (!aligned || step(expr.access.index) <= 0) continue;
      const int64_t place = remainder(expr.access.index.constant, kLoadLength);
      const auto [at, added] = places.emplace(std::pair{key_of(expr.access, place), static_cast<int>(expr.dtype)},
                                              candidates.size());
      if (added) candidates.push_back(start(expr.access, place, kLoadLength));
      candidates[at->second].elements[static_cast<size_t>(place)] = static_cast<int>(id);
    }
    for (Vector& vector : candidates) {
      if (std::count(vector.elements.begin(), vector.elements.end(), -1) > kLoadLength - 2) continue;
      // Elements that nobody wants may lie past the end.
      const int64_t elements = kernel_.buffers[vector.first.buffer].elements;
      const bool kept_inside = std::find(vector.moving.begin(), vector.moving.end(), true) != vector.moving.end();
      if (!kept_inside && range_of(vector.first.index, kernel_.axes).highest + kLoadLength > elements) {
        vector.first.guards.push_back({vector.first.index, 0, elements});
        vector.moving.push_back(true);
      }
      for (int id : vector.elements)
        if (id >= 0) found_.of_expr[id] = static_cast<int>(found_.loads.size());
      found_.loads.push_back(std::move(vector));
    }
  }

  void find_stores() {
    for (size_t first = 0; first < kernel_.stores.size(); ++first) {
      const Access& access = kernel_.stores[first].access;
      const int64_t length = step(access.index);
      if (found_.of_store[first] >= 0 || (length != 2 && length != 4)) continue;
      Vector vector = start(access, 0, length);
      vector.elements[0] = static_cast<int>(first);
      const std::string key = key_of(access, 0);
      for (size_t other = 0; other < kernel_.stores.size(); ++other) {
        const Store& store = kernel_.stores[other];
        const int64_t place = store.access.index.constant - access.index.constant;
        if (place <= 0 || place >= length || found_.of_store[other] >= 0 || key_of(store.access, place) != key)
          continue;
        vector.elements[static_cast<size_t>(place)] = static_cast<int>(other);
      }
      if (std::count(vector.elements.begin(), vector.elements.end(), -1) > 0) continue;
      for (int store : vector.elements) found_.of_store[store] = static_cast<int>(found_.stores.size());
      found_.stores.push_back(std::move(vector));
    }
  }

  const Kernel& kernel_;
  int lane_ = -1;
  Vectors found_;
};

}  // namespace

Vectors find_vectors(const Kernel& kernel, const TileDimensions& dimensions) {
  return VectorFinder(kernel, dimensions).run();
}

}  // namespace kw::triton
