#include <cctype>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "ir/text.hpp"
#include "support/error.hpp"

namespace kw {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

struct Parser {
  std::string_view rest;
  int line = 1;
  Graph graph = {};
  std::string main_device = "cpu";
  std::unordered_map<std::string_view, ValueId> by_name = {};

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kUser, ErrorText{.message = "cannot read the graph text: " + what,
                                            .where = "line " + std::to_string(line),
                                            .source = std::string(rest.substr(0, rest.find('\n'))),
                                            .hint = "",
                                            .detail = "",
                                            .code = "graph-text"});
  }

  // --- Lexing: blanks separate, line ends matter ---

  void skip_blanks() {
    while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t' || rest.front() == '\r'))
      rest.remove_prefix(1);
  }

  bool at(std::string_view token) {
    skip_blanks();
    return rest.starts_with(token);
  }

  bool accept(std::string_view token) {
    if (!at(token)) return false;
    rest.remove_prefix(token.size());
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail("'" + std::string(token) + "' is missing");
  }

  std::string_view peek_word() {
    skip_blanks();
    size_t length = 0;
    while (length < rest.size() && is_word(rest[length])) ++length;
    return rest.substr(0, length);
  }

  std::string_view word(const char* what) {
    const std::string_view found = peek_word();
    if (found.empty()) fail(std::string(what) + " is missing");
    rest.remove_prefix(found.size());
    return found;
  }

  bool accept_word(std::string_view expected) {
    if (peek_word() != expected) return false;
    rest.remove_prefix(expected.size());
    return true;
  }

  std::string text() {
    expect("\"");
    std::string out;
    while (!rest.empty() && rest.front() != '"' && rest.front() != '\n') {
      char c = rest.front();
      rest.remove_prefix(1);
      if (c == '\\' && !rest.empty()) {
        c = rest.front() == 'n' ? '\n' : rest.front();
        rest.remove_prefix(1);
      }
      out += c;
    }
    if (rest.empty() || rest.front() != '"') fail("a string is not closed");
    rest.remove_prefix(1);
    return out;
  }

  std::string text_or_word(const char* what) { return at("\"") ? text() : std::string(word(what)); }

  std::string rest_of_line() {
    skip_blanks();
    std::string_view found = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(found.size());
    while (!found.empty() && (found.back() == ' ' || found.back() == '\r')) found.remove_suffix(1);
    return std::string(found);
  }

  void end_line() {
    skip_blanks();
    if (rest.empty()) return;
    if (rest.front() != '\n') fail("more stands on the line than was understood");
    while (!rest.empty() && rest.front() == '\n') {
      rest.remove_prefix(1);
      ++line;
      skip_blanks();
    }
  }

  // --- Values ---

  ValueId use() {
    expect("%");
    const std::string_view name = word("a value's name");
    const auto found = by_name.find(name);
    if (found == by_name.end()) fail("%" + std::string(name) + " is used before it is defined");
    return found->second;
  }

  ValueId use_or_none() {
    if (accept_word("None")) return kNoValue;
    return use();
  }

  ValueId define(std::string_view name, TensorType type) {
    const auto id = static_cast<ValueId>(graph.values.size());
    if (!by_name.emplace(name, id).second) fail("%" + std::string(name) + " is defined twice");
    graph.values.push_back({std::string(name), std::move(type), kNoNode, 0});
    return id;
  }

  // --- Numbers, lists, types ---

  Argument number() {
    skip_blanks();
    size_t length = 0;
    while (length < rest.size() && (is_word(rest[length]) || rest[length] == '-' || rest[length] == '+')) ++length;
    const std::string_view token = rest.substr(0, length);
    const char* end = token.data() + token.size();
    Argument result;
    if (token.find_first_of(".enf") == std::string_view::npos) {
      int64_t integer = 0;
      const auto parsed = std::from_chars(token.data(), end, integer);
      if (parsed.ec != std::errc() || parsed.ptr != end) fail("'" + std::string(token) + "' is no argument");
      result = integer;
    } else {
      double real = 0;
      const auto parsed = std::from_chars(token.data(), end, real);
      if (parsed.ec != std::errc() || parsed.ptr != end) fail("'" + std::string(token) + "' is no argument");
      result = real;
    }
    rest.remove_prefix(length);
    return result;
  }

  int64_t integer() {
    const Argument found = number();
    const auto* value = std::get_if<int64_t>(&found);
    if (!value) fail("an integer is expected");
    return *value;
  }

  IntList integers() {
    expect("[");
    IntList items;
    while (!accept("]")) {
      items.push_back(integer());
      if (!at("]")) expect(",");
    }
    return items;
  }

  Argument list() {
    expect("[");
    IntList whole;
    FloatList real;
    BoolList flags;
    while (!accept("]")) {
      const Argument item = argument();
      if (const auto* flag = std::get_if<bool>(&item)) flags.push_back(*flag);
      else if (const auto* number = std::get_if<int64_t>(&item)) whole.push_back(*number);
      else if (const auto* number = std::get_if<double>(&item)) real.push_back(*number);
      else fail("a list holds numbers of one kind");
      if (!at("]")) expect(",");
    }
    if (int(!whole.empty()) + int(!real.empty()) + int(!flags.empty()) > 1) fail("a list holds numbers of one kind");
    if (!flags.empty()) return flags;
    if (!real.empty()) return real;
    return whole;
  }

  Argument argument() {
    if (at("%")) return ValueRef{use()};
    if (at("\"")) return text();
    if (at("[")) return list();
    if (accept("(")) {
      ValueList values;
      while (!accept(")")) {
        values.ids.push_back(use_or_none());
        if (!at(")")) expect(",");
      }
      return values;
    }
    const std::string_view next = peek_word();
    if (next.empty() || std::isdigit(static_cast<unsigned char>(next.front())) || next == "inf" || next == "nan")
      return number();
    rest.remove_prefix(next.size());
    if (next == "None") return None{};
    if (next == "true") return true;
    if (next == "false") return false;
    if (next == "float" && accept("[]")) return FloatList{};
    if (next == "bool" && accept("[]")) return BoolList{};
    if (const auto dtype = parse_dtype(next)) return *dtype;
    if (!accept(":")) fail("'" + std::string(next) + "' is no argument");
    return Keyword{std::string(next), device()};
  }

  std::string device() {
    std::string name(word("a name"));
    while (accept(":")) name += ":" + std::string(word("a device's index"));
    return name;
  }

  TensorType type() {
    const std::string_view name = word("an element type");
    const auto dtype = parse_dtype(name);
    if (!dtype) fail("'" + std::string(name) + "' is no element type");
    TensorType type{*dtype, integers(), {}, 0, main_device};
    if (!is_countable(type.shape)) fail("a tensor has more elements than can be counted, or a size below 0");
    type.strides = contiguous_strides(type.shape);
    if (accept_word("strides")) type.strides = integers();
    if (type.strides.size() != type.shape.size()) fail("there are not as many strides as sizes");
    if (accept_word("offset")) type.offset = integer();
    if (accept_word("on")) type.device = device();
    return type;
  }

  // --- Lines ---

  void input() {
    expect("%");
    const std::string_view name = word("a value's name");
    expect(":");
    GraphInput input;
    if (!graph.nodes.empty()) fail("inputs stand before the nodes");
    input.value = define(name, type());
    const std::string_view kind = word("the input's kind");
    if (kind == "user") input.kind = InputKind::kUser;
    else if (kind == "parameter") input.kind = InputKind::kParameter;
    else if (kind == "buffer") input.kind = InputKind::kBuffer;
    else if (kind == "constant") input.kind = InputKind::kConstant;
    else fail("'" + std::string(kind) + "' is no kind of input");
    if (at("\"") || (!peek_word().empty() && peek_word() != "access" && peek_word() != "grad" && peek_word() != "data"))
      input.target = text_or_word("a target");
    if (accept_word("access")) input.access = text();
    input.requires_grad = accept_word("grad");
    if (accept_word("data")) input.data = text();
    graph.inputs.push_back(std::move(input));
  }

  void returns() {
    do {
      GraphOutput output;
      if (accept_word("buffer")) {
        output.kind = OutputKind::kBufferMutation;
        output.target = text();
      } else if (accept_word("input")) {
        output.kind = OutputKind::kInputMutation;
        output.target = text();
      }
      output.value = use_or_none();
      if (accept_word("as")) output.target = text();
      graph.outputs.push_back(std::move(output));
    } while (accept(","));
  }

  void group() {
    std::vector<NodeId> members;
    do {
      if (accept("@")) {
        members.push_back(static_cast<NodeId>(integer()));
        if (members.back() < 0 || members.back() >= static_cast<NodeId>(graph.nodes.size()))
          fail("there is no such node");
      } else {
        members.push_back(graph.values[use()].producer);
        if (members.back() == kNoNode) fail("an input stands in no group");
      }
    } while (accept(","));
    graph.groups.push_back(std::move(members));
  }

  void node() {
    std::vector<std::string_view> names;
    bool in_list = false;
    if (at("%") || peek_word() == "_") {
      do {
        if (names.size() == 1 && at("=")) {  // %a, = …
          in_list = true;
          break;
        }
        if (accept_word("_")) names.emplace_back();
        else {
          expect("%");
          names.push_back(word("a value's name"));
        }
      } while (accept(","));
      expect("=");
    }
    Node node;
    node.in_list = in_list;
    node.op = word("an operator");
    expect("(");
    while (!accept(")")) {
      std::string name(word("an argument's name"));
      expect("=");
      node.arguments.push_back({std::move(name), argument()});
      if (!at(")")) expect(",");
    }
    bool first = true;
    for (const std::string_view name : names) {
      if (name.empty()) {
        node.results.push_back(kNoValue);
        continue;
      }
      expect(first ? ":" : ",");
      first = false;
      const ValueId id = define(name, type());
      graph.values[id].producer = static_cast<NodeId>(graph.nodes.size());
      graph.values[id].result_index = static_cast<int>(node.results.size());
      node.results.push_back(id);
    }
    if (accept("#")) node.location = rest_of_line();
    graph.nodes.push_back(std::move(node));
  }

  void header() {
    if (!accept_word("graph")) fail("it starts with 'graph NAME training {' or 'graph NAME eval {'");
    graph.name = text_or_word("the graph's name");
    graph.training = !accept_word("eval");
    if (graph.training) accept_word("training");
    if (accept_word("on")) main_device = device();
    graph.tf32_convolutions = !accept_word("without");
    if (!graph.tf32_convolutions && !accept_word("tf32")) fail("after 'without' stands 'tf32'");
    graph.tf32_products = accept_word("with");
    if (graph.tf32_products && (!accept_word("tf32") || !accept_word("products")))
      fail("after 'with' stands 'tf32 products'");
    expect("{");
    end_line();
  }

  Graph parse() {
    skip_blanks();
    if (!rest.empty() && rest.front() == '\n') end_line();
    header();
    while (!accept("}")) {
      if (rest.empty()) fail("'}' is missing");
      if (accept_word("input")) input();
      else if (accept_word("return")) returns();
      else if (accept_word("result")) graph.result_json = rest_of_line();
      else if (accept_word("call")) graph.call_json = rest_of_line();
      else if (accept_word("source")) graph.source_json = rest_of_line();
      else if (accept_word("group")) group();
      else node();
      end_line();
    }
    end_line();
    if (!rest.empty()) fail("something follows the graph");
    return std::move(graph);
  }
};

}  // namespace

Graph parse_graph(std::string_view text) { return Parser{text}.parse(); }

}  // namespace kw
