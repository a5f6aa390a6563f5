#include <gtest/gtest.h>

#include "ir/graph.hpp"
#include "ir/op_registry.hpp"
#include "ir/text.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"

using namespace kw;

TEST(GraphText, OneResultInAList) {
  const std::string text =
      "graph G training {\n  input %x : f32[4, 3] user args.0\n  %a, = aten.split_copy.Tensor(self=%x, split_size=4) : "
      "f32[4, 3]\n"
      "  %b, _ = aten.split_copy.Tensor(self=%x, split_size=2) : f32[2, 3]\n  return %a, %b\n}\n";
  const Graph graph = parse_graph(text);
  EXPECT_TRUE(graph.nodes[0].in_list);
  EXPECT_FALSE(graph.nodes[1].in_list);
  EXPECT_EQ(print(graph), text);
}

TEST(GraphText, SaysWhatPyTorchMayRound) {
  for (const std::string how : {"", " without tf32", " with tf32 products", " without tf32 with tf32 products"}) {
    const std::string text = "graph G eval on cuda" + how + " {\n  input %x : f32[4, 3] user args.0\n  return %x\n}\n";
    const Graph graph = parse_graph(text);
    EXPECT_EQ(graph.tf32_convolutions, how.find("without") == std::string::npos) << text;
    EXPECT_EQ(graph.tf32_products, how.find("products") != std::string::npos) << text;
    EXPECT_EQ(print(graph), text);
  }
  EXPECT_THROW(parse_graph("graph G eval on cuda with tf32 {\n}\n"), Error);
}

TEST(TensorType, ContiguityIgnoresAxesOfSizeOne) {
  TensorType type{DType::f32, {4, 1, 3}, {3, 77, 1}};
  EXPECT_TRUE(type.is_contiguous());
  type.strides = {1, 12, 4};
  EXPECT_FALSE(type.is_contiguous());
  EXPECT_TRUE(type.is_dense());
  type.strides = {0, 12, 1};  // expanded
  EXPECT_FALSE(type.is_dense());
}

TEST(TensorType, EmptyAxisCountsAsOneInStrides) { EXPECT_EQ(contiguous_strides({2, 0, 3}), (Shape{3, 3, 1})); }

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < 14; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("f31"), std::nullopt);
  EXPECT_EQ(accumulator_of(DType::bf16), DType::f32);
  EXPECT_EQ(accumulator_of(DType::b1), DType::i64);
  EXPECT_EQ(accumulator_of(DType::f64), DType::f64);
}

TEST(Node, ReadsArgumentsWithTheirDefaults) {
  Node node{"aten.sum.dim_IntList", {{"self", ValueRef{3}}, {"dim", int64_t{1}}, {"keepdim", true}}, {4}, ""};
  EXPECT_EQ(node.value("self"), 3);
  EXPECT_EQ(node.value("other"), kNoValue);
  EXPECT_EQ(node.integers("dim"), IntList{1});
  EXPECT_TRUE(node.boolean("keepdim", false));
  EXPECT_EQ(node.number("alpha", 1.5), 1.5);
}

namespace {

constexpr const char* kEverything = R"(graph "odd name" training on cuda {
  input %x : f32[16, 64] user args.0 access "x"
  input %table : i64[2] strides [2] offset 4 on cpu constant "table" data "[1, \"a\\b\"]"
  input %mean : f16[] buffer "bn.mean" access "self.bn.mean"
  %a, _, %b = aten.many.out(self=%x, list=(%x, None), empty=(), none=None, yes=true, no=false, i=-3, d=1e-05, inf=-inf, s="me\"an\n", ints=[1, 2], noints=[], floats=[1.0, inf], nofloats=float[], flags=[true, false], noflags=bool[], dtype=bf16, device=device:cuda:1, layout=layout:strided) : f32[16, 1] strides [1, 16], b1[0, 3]  # model.py:17
  aten._assert_async.default(self=%b)
  %c = aten.sum.default(self=%a) : f32[] on cuda:1
  return %c as "loss", buffer "bn.mean" %mean, input "args.0" %x
  result {"output": 0}
  call [1]
  source {"path":"a # b.py"}
  group %a, @1
  group %c
}
)";

std::string error_of(const std::string& text) {
  try {
    parse_graph(text);
  } catch (const Error& error) { return error.text().message + " at " + error.text().where; }
  return "no error";
}

}  // namespace

TEST(GraphText, KeepsEverything) {
  const Graph graph = parse_graph(kEverything);
  EXPECT_EQ(print(graph), kEverything);
  EXPECT_EQ(parse_graph(print(graph)), graph);
  EXPECT_EQ(graph.values[1].type.device, "cpu");
  EXPECT_EQ(graph.inputs[1].data, R"([1, "a\b"])");
  EXPECT_EQ(graph.groups, (std::vector<std::vector<NodeId>>{{0, 1}, {2}}));
  verify(graph, "parsing");
}

TEST(GraphText, SaysWhereItIsWrong) {
  EXPECT_EQ(error_of("grph A {\n}"),
            "cannot read the graph text: it starts with 'graph NAME training {' or 'graph NAME eval {' at line 1");
  EXPECT_EQ(error_of("graph A {\n\n  return %x\n}"),
            "cannot read the graph text: %x is used before it is defined at line 3");
  EXPECT_EQ(error_of("graph A {\n  input %x : f31[2] user\n}"),
            "cannot read the graph text: 'f31' is no element type at line 2");
  EXPECT_EQ(error_of("graph A {\n  input %x : f32[2] user\n  input %x : f32[2] user\n}"),
            "cannot read the graph text: %x is defined twice at line 3");
  EXPECT_EQ(error_of("graph A {\n  input %x : f32[2] user\n  %y = aten.neg.default(self=%x)\n}"),
            "cannot read the graph text: ':' is missing at line 3");
  EXPECT_EQ(error_of("graph A {\n  %y = aten.zeros.default() : f32[2]\n  input %x : f32[2] user args.0\n}"),
            "cannot read the graph text: inputs stand before the nodes at line 3")
      << "printed, they would, and every value would have another number";
  EXPECT_EQ(error_of("graph A {\n"), "cannot read the graph text: '}' is missing at line 2");
  EXPECT_EQ(error_of("graph A {\n} x"),
            "cannot read the graph text: more stands on the line than was understood at line 2");
}

TEST(Verifier, NamesTheStepAndTheNode) {
  Graph graph = parse_graph(
      "graph A {\n  input %x : f32[2] user args.0\n  %y = aten.neg.default(self=%x) : f32[2]  # m.py:3\n  return "
      "%y\n}\n");
  std::swap(graph.nodes[0].results[0], std::get<ValueRef>(graph.nodes[0].arguments[0].value).id);
  try {
    verify(graph, "pass cse");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(
        error.text().message,
        "the graph A is malformed after pass cse: %x = aten.neg.default (m.py:3): %y is used before it is defined");
  }
}

TEST(Verifier, FindsEachKindOfDamage) {
  const Graph good = parse_graph(
      "graph A {\n  input %x : f32[2] user args.0\n  %y = aten.neg.default(self=%x) : f32[2]\n  %z = "
      "aten.abs.default(self=%y) : f32[2]\n  return %z\n}\n");
  const auto refuses = [&](auto&& damage) {
    Graph graph = good;
    damage(graph);
    EXPECT_THROW(verify(graph, "a test"), Error);
  };
  verify(good, "parsing");
  refuses([](Graph& graph) { graph.values[1].name = "x"; });
  refuses([](Graph& graph) { graph.values[1].name = "1x"; });
  refuses([](Graph& graph) { graph.values[1].producer = 1; });
  refuses([](Graph& graph) { graph.values[1].type.strides = {}; });
  refuses([](Graph& graph) { graph.values[1].type.shape = {-1}; });
  refuses([](Graph& graph) { std::swap(graph.nodes[0], graph.nodes[1]); });
  refuses([](Graph& graph) { graph.nodes[1].results = {1}; });
  refuses([](Graph& graph) { graph.nodes[1].arguments.push_back({"self", None{}}); });
  refuses([](Graph& graph) { graph.outputs[0].value = 7; });
  refuses([](Graph& graph) { graph.groups = {{0, 0}}; });
  refuses([](Graph& graph) { graph.groups = {{2}}; });
}

TEST(OpRegistry, KnowsOverloadsApart) {
  EXPECT_EQ(class_of("aten.max.dim"), OpClass::kReduction);
  EXPECT_EQ(class_of("aten.max.default"), OpClass::kReduction);
  EXPECT_EQ(class_of("aten.max.other"), OpClass::kPointwise);
  EXPECT_EQ(class_of("aten.add.Scalar"), OpClass::kPointwise);
  EXPECT_EQ(class_of("mine.add.Tensor"), OpClass::kOther);
  EXPECT_FALSE(op_info("mine.add.Tensor").pure());
}

TEST(OpRegistry, CoversCoreAten) {
  for (const char* op : {"convolution.default",
                         "add.Tensor",
                         "permute.default",
                         "addmm.default",
                         "view.default",
                         "_native_batch_norm_legit_functional.default",
                         "mean.dim",
                         "where.self",
                         "clamp.default",
                         "cat.default",
                         "max_pool2d_with_indices.default",
                         "squeeze.dims",
                         "scalar_tensor.default",
                         "_softmax.default",
                         "native_group_norm.default",
                         "split_with_sizes.default",
                         "amax.default",
                         "cumsum.default",
                         "linalg_vector_norm.default",
                         "arange.start_step",
                         "flip.default",
                         "full_like.default",
                         "_native_batch_norm_legit.no_stats",
                         "constant_pad_nd.default",
                         "_scaled_dot_product_efficient_attention.default",
                         "as_strided.default",
                         "native_dropout.default",
                         "randn.default",
                         "gather.default",
                         "_to_copy.default",
                         "unfold.default",
                         "index.Tensor",
                         "index_select.default",
                         "cumprod.default",
                         "lstm.input",
                         "gru.input",
                         "scaled_dot_product_attention.default",
                         "cross_entropy_loss.default",
                         "triplet_margin_loss.default",
                         "einsum.default",
                         "instance_norm.default"})
    EXPECT_FALSE(op_info(std::string("aten.") + op).name.empty()) << op;
}

TEST(OpRegistry, RandomOperatorsAreImpureOnlyWhileTheyDraw) {
  Node node{"aten.dropout.default", {{"input", ValueRef{0}}, {"p", 0.5}, {"train", true}}, {1}, ""};
  EXPECT_FALSE(is_pure(node));
  node.set("train", false);
  EXPECT_TRUE(is_pure(node));
  EXPECT_FALSE(is_pure(Node{"aten.randn.default", {}, {0}, ""}));
  EXPECT_TRUE(is_pure(Node{"aten.add.Tensor", {}, {0}, ""}));
}

TEST(OpCost, CountsFlopsAndBytes) {
  const Graph graph = parse_graph(R"(graph A {
  input %x : f32[2, 8, 16, 16] user args.0
  input %w : f32[4, 8, 3, 3] parameter "w"
  input %a : f32[10, 20] user args.1
  input %b : f32[20, 30] user args.2
  input %e : f32[10, 20] strides [0, 1] user args.3
  %conv = aten.conv2d.default(input=%x, weight=%w) : f32[2, 4, 14, 14]
  %mm = aten.mm.default(self=%a, mat2=%b) : f32[10, 30]
  %ein = aten.einsum.default(equation="ij,jk->ik", tensors=(%a, %b)) : f32[10, 30]
  %add = aten.add.Tensor(self=%a, other=%e) : f32[10, 20]
  %view = aten.view.default(self=%a, size=[20, 10]) : f32[20, 10]
  %square = aten.mul.Tensor(self=%a, other=%a) : f32[10, 20]
}
)");
  EXPECT_EQ(flops(graph, graph.nodes[0]), 2.0 * 2 * 4 * 14 * 14 * 8 * 9);
  EXPECT_EQ(flops(graph, graph.nodes[1]), 2.0 * 10 * 20 * 30);
  EXPECT_EQ(flops(graph, graph.nodes[2]), 2.0 * 10 * 20 * 30);
  EXPECT_EQ(bytes_moved(graph, graph.nodes[3]), 4.0 * (200 + 20 + 200));
  EXPECT_EQ(bytes_moved(graph, graph.nodes[4]), 0.0);
  EXPECT_EQ(bytes_moved(graph, graph.nodes[5]), 4.0 * 400);
}
