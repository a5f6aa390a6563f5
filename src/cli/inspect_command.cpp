#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/help_text.hpp"
#include "cli/options.hpp"
#include "ir/text.hpp"
#include "judge/environment.hpp"
#include "judge/problem_file.hpp"
#include "kernel/text.hpp"
#include "lower/loop_text.hpp"
#include "judge/session.hpp"
#include "targets/targets.hpp"
#include "tile/text.hpp"
#include "plan/program_text.hpp"
#include "plan/schedule_json.hpp"
#include "propose/captured.hpp"
#include "propose/compile.hpp"
#include "propose/device_facts.hpp"
#include "run/optimize.hpp"
#include "run/output_files.hpp"
#include "run/report_version.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace kw::cli {

namespace {

using Json = nlohmann::ordered_json;

struct InspectArguments {
  std::string problem, stage = "source", target = "auto", size, caution = "fused", graphs = "auto";
  std::string step, schedule;
  std::vector<std::string> disabled, before, after;
  bool rewrites = false;
};

std::string passes_text(const Compiled& compiled, const std::string& dumps) {
  std::string text = dumps;
  text += fmt::format("{:<24} {:>9} {:>8} {:>9}\n", "pass", "ms", "nodes", "rewrites");
  for (const PassTiming& pass : compiled.passes.passes)
    text += fmt::format("{:<24} {:>9.2f} {:>8} {:>9}\n", pass.name, pass.seconds * 1e3, pass.nodes,
                        pass.rewrites.total());
  return text + "\n" + print(compiled.graph);
}

// Of one side's nodes, each a kernel of its own: by the device's rates.
double seconds_of(const RewriteSide& side, const DeviceDescription& device) {
  return std::max(side.flops / device.fp32_flops, side.bytes / device.copy_bytes_per_second);
}

// Positive: the rewrite is worth it.
Json saving(const RewriteText& one, const DeviceDescription& device) {
  return {{"flops", one.before.flops - one.after.flops},
          {"bytes", one.before.bytes - one.after.bytes},
          {"seconds", seconds_of(one.before, device) - seconds_of(one.after, device)}};
}

std::string rewrites_text(const Compiled& compiled) {
  std::string text;
  for (const RewriteText& one : compiled.passes.rewrites) {
    const Json saved = saving(one, compiled.device);
    text += fmt::format("{} %{} ({}), saves {:.3g} Mflop, {:.3g} MB, {:.3g} us\n", one.pass, join(one.names, " %"),
                        name_of(one.tag), saved["flops"].get<double>() / 1e6, saved["bytes"].get<double>() / 1e6,
                        saved["seconds"].get<double>() * 1e6);
    for (const std::string& node : one.before.nodes) text += "  - " + node + "\n";
    for (const std::string& node : one.after.nodes) text += "  + " + node + "\n";
    text += "\n";
  }
  return text;
}

Json rewrites_json(const Compiled& compiled) {
  Json list = Json::array();
  for (const RewriteText& one : compiled.passes.rewrites)
    list.push_back({{"pass", one.pass},
                    {"nodes", one.names},
                    {"tag", name_of(one.tag)},
                    {"before", one.before.nodes},
                    {"after", one.after.nodes},
                    {"saves", saving(one, compiled.device)}});
  return list;
}

std::string kernels_text(const Compiled& compiled) {
  std::string text = print(compiled.graph, compiled.program);
  for (const auto& source : compiled.program.sources)
    text += "\n" + kernel::print_kernel(source->kernel) +
            fmt::format("schedule {}\n", to_json(source->schedule, source->kernel).dump());
  return text;
}

// Of each kernel the steps that its schedule asks for, then the target's own, and the tile program after `step`;
// without one, the program that is printed.
std::string tiles_text(const Compiled& compiled, const Target& target, const std::string& step, Json& json) {
  const std::vector<std::string> shared = lower::step_names();
  const bool stops_early = std::find(shared.begin(), shared.end(), step) != shared.end();
  std::string text;
  for (size_t at = 0; at < compiled.program.tiles.size(); ++at) {
    const tile::Program& tiles = compiled.program.tiles[at];
    const lower::Source& source = *compiled.program.sources[at];
    lower::LoweringReport report;
    tile::Program made = lower::to_tiles(source.kernel, source.schedule, &report, step);
    const auto lowered = stops_early ? std::make_shared<const lower::Lowered>(std::move(made))
                                     : lower::lowered_by(target.lowering_steps(), tiles, &report, step);
    text += fmt::format("{}{:<24} {:>9} {:>13}\n", text.empty() ? "" : "\n", "step of " + tiles.name, "ms",
                        "instructions");
    Json steps = Json::array();
    for (const lower::StepTiming& one : report.steps) {
      text += fmt::format("{:<24} {:>9.2f} {:>13}\n", one.step, one.seconds * 1e3, one.instructions);
      steps.push_back({{"name", one.step}, {"seconds", one.seconds}, {"instructions", one.instructions}});
    }
    text += "\n" + tile::print_program(lowered->program);
    if (lowered->loops) text += "\n" + lower::print_loops(lowered->program, *lowered->loops);
    json["tiles"].push_back({{"name", tiles.name}, {"steps", steps}});
  }
  return text.empty() ? "no kernel is made as a tile program\n" : text;
}

// Throws kUser where neither all targets nor this one have such a step.
void check_step(const std::string& step, const Target& target) {
  const std::vector<std::string> names = lower::step_names(target.lowering_steps());
  if (step.empty() || std::find(names.begin(), names.end(), step) != names.end()) return;
  throw Error(ErrorKind::kUser, fmt::format("there is no step of lowering \"{}\" for {}.", step, target.name()),
              fmt::format("Use one of: {}.", join(names, ", ")));
}

// As `optimize` would have it; without what was measured where there is no archive: nothing is kept here.
DeviceDescription device_in_hand(const Environment& environment, const Target& target, const Json& card,
                                 Console& console) {
  try {
    Archive archive;
    return known_device(archive, environment, archive.add_environment(environment.description_json()), target, card);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) throw;
    console.warn("what was measured of this device is left out: " + error.text().message);
  }
  DeviceDescription device = target.default_device();
  target.look_at(device, environment, card);
  return device;
}

int inspect(const InspectArguments& options, Console& console) {
  // What is wrong with a file comes before what is wrong with the machine.
  read_problem_file(options.problem);
  const std::optional<Schedule> given = options.schedule.empty() ? std::nullopt
                                                                 : std::optional(schedule_from_file(options.schedule));
  const Environment environment = find_environment();
  const Target& target = resolve_target(options.target, environment, false);
  check_step(options.step, target);
  const ProblemFile file = read_problem_file(options.problem, options.size, target);
  Session session(environment, console);
  Graph graph = captured_graph(session, file.path, file.size, std::string(target.tensors()));
  session.stop();

  std::string text;
  CompileOptions compile_options{.device = device_in_hand(environment, target, session.card(), console),
                                 .graphs = graph_use_of(options.graphs),
                                 .caution = Caution::kNone,
                                 .passes = {},
                                 .problem_name = file.title(),
                                 .problem_source = file.source};
  for (const Caution caution : kCautions)
    if (name_of(caution) == options.caution) compile_options.caution = caution;
  compile_options.passes.disabled = options.disabled;
  compile_options.passes.print_before = options.before;
  compile_options.passes.print_after = options.after;
  compile_options.passes.keep_rewrites = options.rewrites && options.stage == "passes";
  const auto compiled_to = [&](CompileStage stage) {
    Compiled compiled = compile(std::move(graph), compile_options, stage);
    return given ? with_schedule(compiled, *given, compile_options) : compiled;
  };
  std::string dumps;
  compile_options.passes.dump = [&](const std::string& title, const std::string& dump) {
    dumps += "# " + title + "\n" + dump + "\n";
  };
  Json json = {{"version", kReportVersion},
               {"command", "inspect"},
               {"problem", file.path},
               {"target", target.name()},
               {"stage", options.stage}};
  if (options.stage == "graph") {
    text = print(graph);
  } else if (options.stage == "passes") {
    const Compiled compiled = compile(std::move(graph), compile_options, CompileStage::kPasses);
    text = passes_text(compiled, dumps + rewrites_text(compiled));
    if (options.rewrites) json["rewrites"] = rewrites_json(compiled);
    for (const PassTiming& pass : compiled.passes.passes)
      json["passes"].push_back({{"name", pass.name}, {"seconds", pass.seconds}, {"nodes", pass.nodes}});
  } else if (options.stage == "schedule") {
    const Compiled compiled = compiled_to(CompileStage::kKernels);
    text = print(compiled.graph, compiled.schedule);
    json["schedule"] = Json::parse(whole_schedule(compiled));
  } else if (options.stage == "kernels") {
    const Compiled compiled = compiled_to(CompileStage::kKernels);
    text = kernels_text(compiled);
    json["kernels"] = compiled.kernels;
  } else if (options.stage == "tiles") {
    text = tiles_text(compiled_to(CompileStage::kKernels), target, options.step, json);
  } else {
    text = compiled_to(CompileStage::kSource).source;
  }
  json["text"] = text;
  console.print(text);
  console.write_json(json);
  return kGood;
}

}  // namespace

void define_inspect(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<InspectArguments>();
  add_problem(app, options->problem)->required();
  add_target(app, options->target);
  add_size(app, options->size);
  app.add_option(
         "--stage", options->stage,
         "What to show: the captured graph; the passes with their times and the graph after them; the "
         "schedule, as groups of operations; the kernels, each with the schedule of its axes; the tile programs "
         "that are made of both, with the steps of lowering; or the source of the module")
      ->capture_default_str()
      ->check(CLI::IsMember({"graph", "passes", "schedule", "kernels", "tiles", "source"}))
      ->type_name("STAGE")
      ->group(kInputOutput);
  app.add_option("--caution", options->caution,
                 "How much is fused: fused for all that pays, exact-products to round nothing that enters "
                 "products and convolutions in single precision, library-products to leave these and recurrences to "
                 "PyTorch, no-graphs to do without a CUDA graph, library-random to leave random numbers to PyTorch "
                 "too, unfused for one kernel an operation, library for PyTorch's own calls alone")
      ->capture_default_str()
      ->check(CLI::IsMember(
          {"fused", "exact-products", "library-products", "no-graphs", "library-random", "unfused", "library"}))
      ->type_name("CAUTION")
      ->group(kCompiler);
  add_graphs(app, options->graphs);
  add_disabled_passes(app, options->disabled);
  add_schedule(app, options->schedule);
  app.add_option("--print-before", options->before, "With --stage passes: print the graph as it is before these passes")
      ->delimiter(',')
      ->check(name_of_pass)
      ->default_str("none")
      ->type_name("NAME,...")
      ->group(kCompiler);
  app.add_option("--print-after", options->after, "With --stage passes: print the graph as it is after these passes")
      ->delimiter(',')
      ->check(name_of_pass)
      ->default_str("none")
      ->type_name("NAME,...")
      ->group(kCompiler);
  app.add_flag("--rewrites", options->rewrites,
               "With --stage passes: print each rewrite, its nodes before and after, and what it is expected to save")
      ->group(kCompiler);
  app.add_option("--after", options->step, "With --stage tiles: print the tile programs as they are after this step")
      ->default_str("none")
      ->type_name("STEP")
      ->group(kCompiler);
  invocation.files = [options](CommandFiles& files) {
    files.reads_problem(options->problem);
    if (!options->schedule.empty()) files.reads(options->schedule, "the schedule");
  };
  invocation.run = [options](Console& console) { return inspect(*options, console); };
}

}  // namespace kw::cli
