#include "emit/runtime/triton/refused_indices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "support/text.hpp"

namespace kw::triton {

using kernel::ScalarOp;

namespace {

constexpr std::string_view kFunctions = R"py(

@functools.cache
def refused_indices(kernel):
    """Memory of the host in which a kernel notes an index out of range for each of its sizes; 0: it met none."""
    return torch.zeros(len(INDEX_SIZES[kernel]), dtype=torch.int64, pin_memory=DEVICE == "cuda")


def raise_refused():
    """Raise for what an earlier call's kernels met: waiting for this call's own would take longer than they do."""
    for kernel, sizes in INDEX_SIZES.items():
        noted = refused_indices(kernel)
        for index, size in zip(noted.tolist(), sizes):
            if index:
                noted.zero_()
                # A negative one may have been counted from the end.
                named = f"index {index}" if index >= 0 else f"index {index} or {index - size}"
                where = f"is out of range for a dimension of size {size}"
                raise IndexError(f"{named} {where}; an earlier call met it, and its result is wrong")
)py";

}  // namespace

std::vector<int64_t> sizes_held_against(const tile::Program& program) {
  std::map<tile::Value, int64_t> constants;
  std::vector<int64_t> sizes;
  tile::for_each(program.body, [&](const tile::Instruction& one) {
    if (one.kind == tile::Kind::kConstant) constants[one.results[0]] = one.integer;
    if (one.kind != tile::Kind::kOp || one.op != ScalarOp::kBounded) return;
    const int64_t size = constants.at(one.operands[1]);
    if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  });
  return sizes;
}

std::string place_of_refused(const tile::Program& program, int64_t size) {
  const std::vector<int64_t> sizes = sizes_held_against(program);
  const auto place = std::find(sizes.begin(), sizes.end(), size) - sizes.begin();
  return place == 0 ? kRefusedPointer : fmt::format("{} + {}", kRefusedPointer, place);
}

std::string refused_argument(const std::string& kernel) { return fmt::format("refused_indices(\"{}\")", kernel); }

std::string refused_definitions(const Program& program) {
  std::string table;
  for (const tile::Program& tiles : program.tiles) {
    const std::vector<int64_t> sizes = sizes_held_against(tiles);
    if (sizes.empty()) continue;
    std::vector<std::string> texts;
    for (const int64_t size : sizes) texts.push_back(std::to_string(size));
    table += fmt::format("    \"{}\": ({}{}),\n", tiles.name, join(texts, ", "), texts.size() == 1 ? "," : "");
  }
  if (table.empty()) return "";
  const std::string comment = "# Of each kernel, the sizes of the dimensions that it holds indices against.\n";
  return comment + "INDEX_SIZES = {\n" + table + "}\n" + std::string(kFunctions);
}

std::string raise_refused(const Program& program) {
  const auto holds = [](const tile::Program& tiles) { return !sizes_held_against(tiles).empty(); };
  return std::any_of(program.tiles.begin(), program.tiles.end(), holds) ? "raise_refused()\n" : "";
}

}  // namespace kw::triton
