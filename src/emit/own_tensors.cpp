#include "emit/own_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace kw {
namespace {

constexpr std::string_view kText =
    R"py(OWN = EXPECTED[:{}]  # the module's own parameters and buffers; others are constants, or what a call passes
PLACES = weakref.WeakKeyDictionary()  # module → what find_own found


def find_own(module):
    """The steps from the module to those that hold its tensors, as (modules, name, module), and of each tensor the
    dictionary that it is in and its name there."""
    steps, places = {{}}, []
    for path, *_ in OWN:
        owner, (*names, last) = module, path.split(".")
        for name in names:
            modules = owner._modules
            owner = modules[name]
            steps[id(modules), name] = modules, name, owner
        places.append((next(held for held in (vars(owner), owner._parameters, owner._buffers) if last in held), last))
    return list(steps.values()), places


def own_tensors(module):
    """The tensors of OWN. A later call sees to it that the modules that hold them are still the same."""
    steps, places = PLACES.get(module, ((), ()))
    try:
        if places and all([modules[name] is owner for modules, name, owner in steps]):
            return [held[name] for held, name in places]
    except KeyError:
        pass
    try:
        _, places = PLACES[module] = find_own(module)
        return [held[name] for held, name in places]
    except (KeyError, StopIteration):  # what is no longer registered may be computed: parametrizations are
        return [operator.attrgetter(path)(module) for path, *_ in OWN]


)py";

}  // namespace

size_t registered_tensors(const std::vector<GraphInput>& inputs) {
  const auto is_registered = [](const GraphInput& input) {
    return (input.kind == InputKind::kParameter || input.kind == InputKind::kBuffer) && !input.access.empty();
  };
  return std::find_if_not(inputs.begin(), inputs.end(), is_registered) - inputs.begin();
}

std::string own_tensors_text(size_t count) { return fmt::format(fmt::runtime(kText), count); }

}  // namespace kw
