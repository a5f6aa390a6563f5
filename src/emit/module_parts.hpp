// Parts of a module that several expressions begin with, each looked up once: `layer1_0 = self.layer1[0]`. A lookup in
// a torch.nn.Module is a Python call, so that those of a hundred tensors take as long as its kernels.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kw {

struct ModuleParts {
  std::string definitions;               // lines of Python, outer parts first
  std::vector<std::string> expressions;  // those given, with the parts' names
};

// Of expressions like "self.layer1[0].bn1.weight" the part is all that another goes on from in another way. Others are
// left as they are. `free_name` makes a name that is not taken of one that is wished for.
ModuleParts named_parts(const std::vector<std::string>& expressions,
                        const std::function<std::string(const std::string&)>& free_name);

// "layer1.0.bn1" of "self.layer1[0].bn1", as modules register their parts; nullopt of another kind of expression.
std::optional<std::string> registered_path(const std::string& expression);

}  // namespace kw
