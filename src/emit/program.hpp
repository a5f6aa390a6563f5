// Program: what ModelNew.forward does, step by step, on tensors named like the graph's values. The Python writer prints
// it; a target adds the kernels' source and how one is launched.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/graph.hpp"
#include "lower/pipeline.hpp"
#include "tile/program.hpp"

namespace kw {

// out = torch.empty_strided(shape, strides, dtype, device), or zeros. value kNoValue: scratch
struct AllocateStep {
  ValueId value = kNoValue;
  std::string name;
  TensorType type;
  bool zeros = false;
};

// Launches of one program, one after the other: its run-time size of this name counts them from 0.
struct Repetition {
  int64_t count = 1;
  std::string size;
};

// tiles[program] on tensors in the order of its buffers; each is a step's or a graph value's name, starting
// `offsets[i]` elements after its data pointer. group: of the schedule, whose work it does. A program with a run-time
// size is repeated. by_last: the program is one block, and the last block of the step before, also a TileStep, does its
// work: one launch for both.
struct TileStep {
  int program = 0;
  std::vector<std::string> tensors;
  std::vector<int64_t> offsets;
  int group = 0;
  std::optional<Repetition> repetition = {};
  bool by_last = false;
};

// results = torch.ops.<op>(arguments); each result is restored to its captured strides when the library returns others.
// mask_vector: of kw.keep_mask, which is a kernel of ours written by hand (emit/runtime/triton/keep_mask.hpp): elements
// side by side that a thread is expected to take.
struct ExternStep {
  NodeId node = kNoNode;
  int64_t mask_vector = 0;
};

// name = base.as_strided(shape, strides, offset): a view that costs nothing.
struct ViewStep {
  ValueId value = kNoValue;
  std::string base;
  TensorType type;
};

// whole.narrow(dim, start, length).copy_(part)
struct CopyStep {
  std::string part, whole;
  int64_t dim = 0, start = 0, length = 0;
};

using Step = std::variant<AllocateStep, TileStep, ExternStep, ViewStep, CopyStep>;

// Does the last program of the step before do this step's work?
inline bool is_by_last(const Step& step) {
  const auto* tiles = std::get_if<TileStep>(&step);
  return tiles && tiles->by_last;
}

// The tensors that a kernel of ours reads or writes; nullptr for a step that is none.
inline const std::vector<std::string>* kernel_tensors(const Step& step) {
  if (const auto* tiles = std::get_if<TileStep>(&step)) return &tiles->tensors;
  return nullptr;
}

struct Program {
  std::vector<tile::Program> tiles;  // what is planned and priced
  // [tile program] The same behind the target's own steps of lowering, which change no name, buffer or grid: what its
  // printer prints.
  std::vector<std::shared_ptr<const lower::Lowered>> lowered;
  std::vector<std::shared_ptr<const lower::Source>> sources;  // [tile program] what it was made of
  // [group of the schedule] What its kernels were made of, in order, also where other groups have the same kernels.
  std::vector<std::vector<std::shared_ptr<const lower::Source>>> group_sources;
  std::vector<Step> steps;  // mutations and the return follow from the graph's outputs
  bool graphs = false;      // kernel_forward is captured into a CUDA graph
};

}  // namespace kw
