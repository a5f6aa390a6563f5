#include "plan/repeated_kernels.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace kw {
namespace {

class Repetitions {
 public:
  explicit Repetitions(Program program) : program_(std::move(program)) {
    for (const Step& step : program_.steps)
      if (const auto* allocate = std::get_if<AllocateStep>(&step); allocate && allocate->value == kNoValue)
        scratch_[allocate->name] = allocate;
  }

  Program run() {
    number_contents();
    find_accesses();
    while (!find_shared()) {}
    if (!dropped_.empty()) rewrite();
    return std::move(program_);
  }

 private:
  // Numbers for what a tensor holds: equal numbers, equal contents. Each step is asked for by its program, its offsets
  // and what all its tensors hold before it.
  using Key = std::vector<int64_t>;

  const TileStep* tiles_at(size_t index) const { return std::get_if<TileStep>(&program_.steps[index]); }

  bool writes(const TileStep& step, size_t buffer) const {
    return program_.tiles[step.program].buffers[buffer].role != tile::BufferRole::kInput;
  }

  // One launch of one program.
  bool stands_alone(size_t index) const {
    const bool is_followed = index + 1 < program_.steps.size() && is_by_last(program_.steps[index + 1]);
    return !tiles_at(index)->repetition && !tiles_at(index)->by_last && !is_followed;
  }

  int64_t content_of(const std::string& name) {
    const auto known = contents_.find(name);
    if (known != contents_.end()) return known->second;
    const auto scratch = scratch_.find(name);
    const int64_t number = scratch == scratch_.end() ? ++numbers_ : scratch->second->zeros ? kZeros : kAnything;
    return contents_[name] = number;
  }

  void number_contents() {
    std::map<Key, size_t> first;
    std::map<Key, std::vector<int64_t>> made;  // [buffer] what it holds behind the step
    for (size_t index = 0; index < program_.steps.size(); ++index) {
      if (const auto* copy = std::get_if<CopyStep>(&program_.steps[index])) contents_[copy->whole] = ++numbers_;
      const TileStep* step = tiles_at(index);
      if (!step) continue;
      Key key = {step->program};
      key.insert(key.end(), step->offsets.begin(), step->offsets.end());
      for (const std::string& name : step->tensors) key.push_back(content_of(name));
      const bool alone = stands_alone(index);
      if (!alone) key.push_back(++numbers_);  // like no other
      const auto [known, is_new] = first.emplace(key, index);
      std::vector<int64_t>& behind = made[key];
      if (is_new)
        for (size_t buffer = 0; buffer < step->tensors.size(); ++buffer) behind.push_back(++numbers_);
      else if (writes_scratch_alone(*step)) dropped_[index] = known->second;
      for (size_t buffer = 0; buffer < step->tensors.size(); ++buffer)
        if (writes(*step, buffer)) contents_[step->tensors[buffer]] = behind[buffer];
    }
  }

  bool writes_scratch_alone(const TileStep& step) const {
    for (size_t buffer = 0; buffer < step.tensors.size(); ++buffer)
      if (writes(step, buffer) && !scratch_.contains(step.tensors[buffer])) return false;
    return true;
  }

  void find_accesses() {
    for (size_t index = 0; index < program_.steps.size(); ++index)
      if (const TileStep* step = tiles_at(index))
        for (size_t buffer = 0; buffer < step->tensors.size(); ++buffer)
          (writes(*step, buffer) ? writers_ : readers_)[step->tensors[buffer]].insert(index);
  }

  // Which tensors stand for those that the dropped steps would write. Returns whether there is one for each of them;
  // steps of which that is not so are kept.
  bool find_shared() {
    stands_for_.clear();
    std::set<std::string> without;
    for (const auto& [index, first] : dropped_) {
      const TileStep &step = *tiles_at(index), &earlier = *tiles_at(first);
      for (size_t buffer = 0; buffer < step.tensors.size(); ++buffer) {
        if (!writes(step, buffer)) continue;
        const std::string &own = step.tensors[buffer], &other = earlier.tensors[buffer];
        const auto [known, is_new] = stands_for_.emplace(own, other);
        if (known->second != other || !can_stand_for(own, other)) without.insert(own);
      }
    }
    std::vector<size_t> kept;
    for (const auto& [index, first] : dropped_)
      for (size_t buffer = 0; buffer < tiles_at(index)->tensors.size(); ++buffer)
        if (writes(*tiles_at(index), buffer) && without.contains(tiles_at(index)->tensors[buffer]))
          kept.push_back(index);
    for (const size_t index : kept) dropped_.erase(index);
    return kept.empty();
  }

  // The other tensor holds from some step on what this one does when all that write it have run.
  bool can_stand_for(const std::string& own, const std::string& other) {
    const auto scratch = scratch_.find(other);
    if (own == other || scratch == scratch_.end() || scratch->second->type != scratch_.at(own)->type) return false;
    const std::set<size_t>& writers = writers_.at(own);
    const bool all_dropped = std::all_of(writers.begin(), writers.end(),
                                         [&](size_t index) { return dropped_.contains(index); });
    if (!all_dropped || writers.size() != writers_.at(other).size()) return false;
    const std::set<size_t>& readers = readers_[own];
    return std::all_of(readers.begin(), readers.end(),
                       [&](size_t index) { return dropped_.contains(index) || index > *writers.rbegin(); });
  }

  void rewrite() {
    std::vector<Step> steps;
    for (size_t index = 0; index < program_.steps.size(); ++index) {
      if (dropped_.contains(index)) continue;
      Step& step = program_.steps[index];
      if (const auto* allocate = std::get_if<AllocateStep>(&step); allocate && stands_for_.contains(allocate->name))
        continue;
      if (auto* tiles = std::get_if<TileStep>(&step))
        for (std::string& name : tiles->tensors)
          if (const auto other = stands_for_.find(name); other != stands_for_.end()) name = other->second;
      steps.push_back(std::move(step));
    }
    program_.steps = std::move(steps);
  }

  static constexpr int64_t kAnything = 0, kZeros = 1;

  Program program_;
  std::map<std::string, const AllocateStep*> scratch_;
  int64_t numbers_ = kZeros;
  std::map<std::string, int64_t> contents_;  // of tensors, behind the steps seen so far
  std::map<size_t, size_t> dropped_;         // step → the first of its kind
  std::map<std::string, std::set<size_t>> writers_, readers_;
  std::map<std::string, std::string> stands_for_;  // tensor → the one that is read in its stead
};

}  // namespace

Program with_each_kernel_once(Program program) { return Repetitions(std::move(program)).run(); }

}  // namespace kw
