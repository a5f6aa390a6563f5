// Whether functions.cpp has all that this version of fmt declares: each kind of text that we format.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

int main(int count, char** arguments) {
  const std::string text = fmt::format("{} {:>12} {:.3g} {:#x} {} {}", arguments[0], count, count / 3.0, count, count > 1,
                                       fmt::join(std::vector<double>{1.5, 2.0}, ", "));
  return text.empty() ? 1 : 0;
}
