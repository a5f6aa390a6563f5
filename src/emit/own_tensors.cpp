#include "emit/own_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "emit/python_text.hpp"

namespace kw {
namespace {

constexpr std::string_view kOwnTensors =
    R"py(OWN = EXPECTED[:{0}]  # the module's own parameters and buffers; others are constants, or what a call passes
{1}PLACES = weakref.WeakKeyDictionary()  # module → what find_own found


def find_own(module):
    """The steps from the module to its parts, as (modules, name, part); of each tensor the dictionary that it is in and
    its name there; {2}."""
    steps, places = {{}}, []

    def part(path):
        owner = module
        for name in path.split(".") if path else ():
            modules = owner._modules
            owner = modules[name]
            steps[id(modules), name] = modules, name, owner
        return owner

    try:
        for path, *_ in OWN:
            path, _, last = path.rpartition(".")
            owner = part(path)
            holders = vars(owner), owner._parameters, owner._buffers
            places.append((next(held for held in holders if last in held), last))
        return list({3}
    except (KeyError, StopIteration):  # no longer registered, but computed, as parametrizations are, or gone
        return (), (), {4}


def own_tensors(module):
    """The tensors of OWN. A later call sees to it that the parts that hold them are still the same."""
    steps, places, _ = PLACES.get(module, ((), (), ()))
    try:
        if places and all([modules[name] is part for modules, name, part in steps]):
            return [held[name] for held, name in places]
    except KeyError:
        pass
    _, places, _ = PLACES[module] = find_own(module)
    if places:
        return [held[name] for held, name in places]
    return [operator.attrgetter(path)(module) for path, *_ in OWN]


)py";

}  // namespace

size_t registered_tensors(const std::vector<GraphInput>& inputs) {
  const auto is_registered = [](const GraphInput& input) {
    return (input.kind == InputKind::kParameter || input.kind == InputKind::kBuffer) && !input.access.empty();
  };
  return std::find_if_not(inputs.begin(), inputs.end(), is_registered) - inputs.begin();
}

std::string own_tensors_text(size_t count, const std::vector<std::string>& parts) {
  std::vector<std::string> paths;
  for (const std::string& part : parts) paths.push_back(python::quoted(part));
  const std::string list = parts.empty()
                               ? ""
                               : "# Parts that forward asks whether they are in training mode.\n" +
                                     python::wrapped_call("PARTS = (", paths, paths.size() == 1 ? ",)" : ")") + "\n";
  return fmt::format(
      fmt::runtime(kOwnTensors), count, list, parts.empty() ? "nothing more" : "the parts of PARTS",
      parts.empty() ? "steps.values()), places, ()" : "steps.values()), places, [part(path) for path in PARTS]",
      parts.empty() ? "()" : "[operator.attrgetter(path)(module) for path in PARTS]");
}

}  // namespace kw
