#include "target/target.hpp"

#include "support/error.hpp"

namespace kw {

const KernelLanguage& language_of(const Target& target) {
  if (const KernelLanguage* language = target.language()) return *language;
  throw Error(ErrorKind::kUser, "language models write no kernels for the target " + std::string(target.name()) + ".",
              "Leave the model out, or give another --target.");
}

}  // namespace kw
