// Parts of a module that several of its tensors' expressions begin with.
#include <gtest/gtest.h>

#include "emit/module_parts.hpp"

namespace kw {
namespace {

ModuleParts parts_of(const std::vector<std::string>& expressions) {
  return named_parts(expressions, [](const std::string& wished) { return wished; });
}

using Texts = std::vector<std::string>;

TEST(ModuleParts, AreLookedUpOnceOuterOnesFirst) {
  const ModuleParts parts = parts_of(
      {"self.layer1[0].bn1.weight", "self.layer1[0].bn1.bias", "self.layer1[0].conv1.weight", "self.layer1[1].weight"});
  EXPECT_EQ(parts.definitions, "layer1 = self.layer1\nlayer1_0 = layer1[0]\nlayer1_0_bn1 = layer1_0.bn1\n");
  EXPECT_EQ(parts.expressions,
            (Texts{"layer1_0_bn1.weight", "layer1_0_bn1.bias", "layer1_0.conv1.weight", "layer1[1].weight"}));
}

TEST(ModuleParts, OfOneTensorHaveNoName) {
  const ModuleParts parts = parts_of({"self.a.b.weight", "self.c.weight", "self.c.weight"});
  EXPECT_EQ(parts.definitions, "");
  EXPECT_EQ(parts.expressions, (Texts{"self.a.b.weight", "self.c.weight", "self.c.weight"}));
}

TEST(ModuleParts, ArgumentsAndOtherExpressionsStayAsTheyAre) {
  const Texts expressions = {"x[0]", "x[1]", "constant_a(self.w.device)", "self.parts[\"a\"].weight",
                             "self.parts[-1].bias"};
  const ModuleParts parts = parts_of(expressions);
  EXPECT_EQ(parts.definitions, "");
  EXPECT_EQ(parts.expressions, expressions);
}

TEST(ModuleParts, NamesAreThoseThatAreFree) {
  const ModuleParts parts = named_parts({"self.x.weight", "self.x.bias"},
                                        [](const std::string& wished) { return wished + "_"; });
  EXPECT_EQ(parts.definitions, "x_ = self.x\n");
  EXPECT_EQ(parts.expressions, (Texts{"x_.weight", "x_.bias"}));
}

}  // namespace
}  // namespace kw
