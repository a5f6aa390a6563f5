#include "cli/repl.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "archive/archive.hpp"
#include "cli/commands.hpp"
#include "cli/line_editor.hpp"
#include "cli/report_text.hpp"
#include "support/suggest.hpp"
#include "run/conversation.hpp"
#include "run/output_files.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/scratch.hpp"
#include "support/text.hpp"

namespace kw::cli {

namespace fs = std::filesystem;

namespace {

struct ReplCommand {
  const char* name;
  const char* arguments;
  const char* help;
};

constexpr ReplCommand kReplCommands[] = {
    {":open", "FILE", "take a module from a file, and ask for a kernel"},
    {":again", "", "ask for another answer"},
    {":repair", "", "tell the model what was wrong with its last answer, or how fast it is, and ask again"},
    {":edits", "[N]", "let the model pick the schedule of the compiler's kernels instead: N are evaluated  [6]"},
    {":show", "[N|problem|answer|built-in]",
     "the last kernel, that of answer N, the module, the answer as it was written, the compiler's kernel"},
    {":history", "", "all answers, their verdicts and times"},
    {":keep", "[FILE] [N]", "write the last right kernel, or that of answer N  [STEM_kw.py]"},
    {":prompt", "", "what the model is sent"},
    {":set", "[NAME VALUE]", "temperature, top-p, max-tokens, budget (seconds of timing), shots, seed"},
    {":help", "", "this"},
    {":quit", "", "leave (Ctrl-D does, too)"},
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (c != ' ' && c != '\t') word += c;
    else if (!word.empty()) words.push_back(std::exchange(word, ""));
  }
  return words;
}

bool has_line_starting(const std::string& text, const char* start) {
  return text.starts_with(start) || text.find(std::string("\n") + start) != std::string::npos;
}

std::string history_path() {
  const fs::path archive = Archive::default_path();
  return (archive.parent_path() / "repl_history").string();
}

std::vector<std::string> completions(const std::string& line) {
  std::vector<std::string> found;
  if (line.find(' ') == std::string::npos) {
    for (const ReplCommand& command : kReplCommands)
      if (std::string(command.name).starts_with(line)) found.emplace_back(command.name);
    return found;
  }
  const std::string word = line.substr(line.rfind(' ') + 1),
                    folder = word.substr(0, word.rfind('/') == std::string::npos ? 0 : word.rfind('/') + 1);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string name = folder + entry.path().filename().string() + (entry.is_directory(error) ? "/" : "");
    if (name.starts_with(word)) found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

class Repl {
 public:
  Repl(const ReplOptions& options, Console& console)
      : options_(options), console_(console), conversation_(options.generate, console) {}

  int run() {
    const std::unique_ptr<LineEditor> editor = open_editor(
        {.prompt = "kw> ", .history = history_path(), .is_complete = is_complete_input, .completions = completions});
    terminal_ = editor->is_terminal();
    guarded([&] {
      const std::string name = conversation_.model_name();
      if (terminal_) console_.print(name + ". Paste a module or :open FILE; :help shows what else there is.");
      if (!options_.problem.empty()) open(options_.problem);
    });
    while (!done_) {
      Input input = editor->read();
      interrupts_.take();
      if (input.kind == Input::Kind::kEnd) break;
      if (input.kind == Input::Kind::kInterrupted) {
        if (!terminal_) return kInterruptedExitCode;
        if (input.text.empty()) console_.print(":quit, or Ctrl-D, leaves.");
        continue;
      }
      guarded([&] { take(input.text); });
    }
    return failed_ && !terminal_ ? worst_ : kGood;
  }

 private:
  // What goes wrong with one input is told, and the next one is read.
  template <typename Body>
  void guarded(Body&& body) {
    try {
      body();
    } catch (const Interrupted&) {
      interrupts_.take();
      end_line();
      console_.warn("stopped");
    } catch (const Error& error) {
      end_line();
      if (interrupts_.take()) return console_.warn("stopped");
      console_.warn(render(error));
      failed_ = true;
      worst_ = std::max(worst_, error.exit_code());
    }
  }

  void take(const std::string& text) {
    const std::string line = trimmed(text);
    if (line.empty()) return;
    if (line.starts_with(':') && line.find('\n') == std::string::npos) return command(words_of(line));
    if (looks_like_code(text)) return paste(text);
    // Words: what is to be different about the next answer.
    answer(line);
  }

  void command(const std::vector<std::string>& words) {
    const std::string& name = words.front();
    if (name == ":open") return open(argument(words, 1, "Which file? :open FILE"));
    if (name == ":again") return answer("");
    if (name == ":repair") return repair();
    if (name == ":edits") return edits(words.size() > 1 ? number(words[1]) : 6);
    if (name == ":show") return show(words.size() > 1 ? words[1] : "");
    if (name == ":history") return console_.print(history());
    if (name == ":keep") return keep(words);
    if (name == ":prompt") return console_.print(conversation_.prompt());
    if (name == ":set") return set(words);
    if (name == ":help") return console_.print(help());
    if (name == ":end") return;
    if (name == ":quit" || name == ":q" || name == ":exit") {
      done_ = true;
      return;
    }
    std::vector<std::string> names;
    for (const ReplCommand& one : kReplCommands) names.emplace_back(one.name);
    const std::string near = nearest(name, names);
    throw Error(ErrorKind::kUser, "there is no command " + name + ".",
                near.empty() ? ":help shows what there is." : "Did you mean " + near + "?");
  }

  static std::string argument(const std::vector<std::string>& words, size_t place, const char* otherwise) {
    if (place >= words.size()) throw Error(ErrorKind::kUser, otherwise);
    return words[place];
  }

  static int number(const std::string& word) {
    char* end = nullptr;
    const long value = std::strtol(word.c_str(), &end, 10);
    if (end == word.c_str() || *end || value < 1 || value > 100000)
      throw Error(ErrorKind::kUser, word + " is no number of that kind.");
    return static_cast<int>(value);
  }

  static std::string help() {
    std::string text =
        "Paste a module (an empty line after it ends it, or :end), or open one. Then the model writes, and what it "
        "writes is judged.\nAnything else that is typed is told to the model for its next answer. Ctrl-C stops it.\n";
    for (const ReplCommand& one : kReplCommands)
      text += fmt::format("  {:<40}{}\n", fmt::format("{} {}", one.name, one.arguments), one.help);
    return text;
  }

  void paste(const std::string& text) {
    std::string source = text;
    if (const size_t end = source.rfind("\n:end"); end != std::string::npos && trimmed(source.substr(end)) == ":end")
      source.resize(end);
    open(scratch_.write(fmt::format("pasted_{}.py", ++pasted_), trimmed(source) + "\n"));
  }

  void open(const std::string& path) {
    opened_.push_back(path);
    const Report& report = conversation_.open(path);
    stem_ = fs::path(path).stem().string();
    kept_.clear();
    const std::string times = measure_text(report);
    console_.print(fmt::format("built-in   {}\n{}", report.passed() ? "verified" : "failed: " + report.reason, times));
    answer("");
  }

  // Streams an answer and judges it.
  void answer(const std::string& message) {
    if (!conversation_.has_problem())
      throw Error(ErrorKind::kUser, "There is no module yet.", "Paste one, or :open FILE.");
    begun_ = false;
    Turn& turn = conversation_.ask(message, [this](std::string_view piece) {
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
      begun_ = true;
      at_line_start_ = piece.ends_with('\n');
      return true;
    });
    end_line();
    conversation_.judge(turn);
    console_.print(verdict_text(turn, conversation_.turns().size()));
  }

  void repair() {
    const std::string feedback = conversation_.feedback();
    if (feedback.empty())
      throw Error(
          ErrorKind::kUser,
          "There is nothing to tell the model: no answer has been judged, or the last one was right and not timed.",
          ":again asks for another.");
    console_.print(feedback);
    answer(feedback);
  }

  void edits(int evaluations) { console_.print(edits_text(conversation_.edits(evaluations))); }

  void end_line() {
    if (begun_ && !at_line_start_) std::fputc('\n', stdout);
    std::fflush(stdout);
    begun_ = false;
    at_line_start_ = true;
  }

  static std::string ratio_text(const Measurement& made) {
    const auto& ours = made.time_ms(Contender::kOurs);
    if (!ours) return "";
    std::string text = fmt::format("{:>10.4g} ms", ours->value);
    if (const auto& speedup = made.speedup_over(Contender::kEager))
      text += fmt::format("  {:.2f}x eager  [{:.2f}, {:.2f}]", speedup->ratio.value, speedup->ratio.low,
                          speedup->ratio.high);
    return text + (made.noise.empty() ? "" : "  noisy");
  }

  std::string verdict_text(const Turn& turn, size_t count) const {
    const AnswerRecord& record = turn.record;
    const bool good = record.passed();
    std::string text = fmt::format("answer {}   {}", count, good ? "right" : record.outcome.code);
    if (const std::string& reason = record.outcome.reason; !good && !reason.empty()) text += ": " + reason;
    text += fmt::format("  ({} tokens, {:.1f} s)\n", turn.tokens, turn.seconds);
    if (!record.repairs.empty()) text += "  mended     " + join(record.repairs, "; ") + "\n";
    if (good) {
      const Measurement& built_in = conversation_.built_in().timing.measured;
      if (const auto& eager = built_in.time_ms(Contender::kEager))
        text += fmt::format("  eager      {:>10.4g} ms\n", eager->value);
      if (const std::string times = ratio_text(built_in); !times.empty()) text += "  built-in   " + times + "\n";
      if (const std::string times = ratio_text(turn.times); !times.empty()) text += "  this one   " + times + "\n";
      text += conversation_.feedback().empty() ? "  :keep writes it\n"
                                               : "  :keep writes it, :repair tells the model how fast it is\n";
    } else if (!conversation_.feedback().empty()) {
      text += "  :repair tells the model, :again asks for another\n";
    }
    return text;
  }

  std::string history() {
    std::string text;
    size_t count = 0;
    for (const Turn& turn : conversation_.turns()) {
      text += fmt::format("{:>3}  {:<16}{}\n", ++count,
                          !turn.judged           ? "stopped"
                          : turn.record.passed() ? "right"
                                                 : turn.record.outcome.code,
                          ratio_text(turn.times));
    }
    return text.empty() ? "No answers yet.\n" : text;
  }

  Turn& turn(const std::string& which) {
    std::vector<Turn>& turns = conversation_.turns();
    if (turns.empty()) throw Error(ErrorKind::kUser, "There are no answers yet.");
    if (which.empty()) return turns.back();
    const size_t place = static_cast<size_t>(number(which));
    if (place > turns.size())
      throw Error(ErrorKind::kUser, fmt::format("There are {} answers.", turns.size()), ":history lists them.");
    return turns[place - 1];
  }

  void show(const std::string& what) {
    if (what == "problem") return console_.print(conversation_.problem_source());
    if (what == "built-in") return console_.print(conversation_.built_in_source());
    if (what == "answer") return console_.print(turn("").text);
    const Turn& one = turn(what);
    if (one.source.empty())
      throw Error(ErrorKind::kUser, "There is no kernel in that answer.", ":show answer prints it as it was written.");
    console_.print(one.source);
  }

  void keep(const std::vector<std::string>& words) {
    std::string file, which;
    for (size_t i = 1; i < words.size(); ++i)
      (words[i].find_first_not_of("0123456789") == std::string::npos ? which : file) = words[i];
    const Turn* kept = which.empty() ? nullptr : &turn(which);
    if (!kept)
      for (const Turn& one : conversation_.turns())
        if (one.judged && one.record.passed() && !one.source.empty()) kept = &one;
    if (!kept || !kept->record.passed())
      throw Error(ErrorKind::kUser, which.empty() ? "No answer was right yet." : "That answer was not right.",
                  ":show prints it all the same; `kw optimize` has the compiler's.");
    const std::string path = file.empty() ? stem_ + "_kw.py" : file;
    CommandFiles files;
    for (const std::string& opened : opened_) files.reads_problem(opened);
    files.writes(path, "the output");
    files.check();
    check_replaceable(path, "Give :keep another name.");
    write_file_atomically(path, kept->source);
    console_.print("written    " + fs::absolute(path).lexically_normal().string());
  }

  void set(const std::vector<std::string>& words) {
    GenerateOptions& options = conversation_.options();
    if (words.size() < 3) {
      console_.print(fmt::format("temperature {}\ntop-p {}\nmax-tokens {}\nbudget {}\nshots {}\nseed {}\n",
                                 options.temperature, options.top_p, options.max_tokens, options.budget_seconds,
                                 options.shots, options.seed ? std::to_string(*options.seed) : "none"));
      return;
    }
    char* end = nullptr;
    const double value = std::strtod(words[2].c_str(), &end);
    const auto within = [&](double low, double high) {
      if (end == words[2].c_str() || *end || value < low || value > high)
        throw Error(ErrorKind::kUser, fmt::format("{} may be from {} to {}.", words[1], low, high));
      return value;
    };
    if (words[1] == "temperature") options.temperature = within(0, 10);
    else if (words[1] == "top-p") options.top_p = within(0, 1);
    else if (words[1] == "max-tokens") options.max_tokens = static_cast<int>(within(1, 1e7));
    else if (words[1] == "budget") options.budget_seconds = within(0, 600);
    else if (words[1] == "shots") options.shots = static_cast<int>(within(0, 64));
    else if (words[1] == "seed") options.seed = static_cast<uint64_t>(within(0, 1e15));
    else
      throw Error(ErrorKind::kUser, "there is no setting " + words[1] + ".",
                  "temperature, top-p, max-tokens, budget, shots, seed");
  }

  const ReplOptions& options_;
  Console& console_;
  InteractiveInterrupts interrupts_;
  Conversation conversation_;
  Scratch scratch_;
  std::string stem_ = "model", kept_;
  std::vector<std::string> opened_;  // files, which no answer may overwrite
  int pasted_ = 0, worst_ = kAnswerIsNo;
  bool terminal_ = false, done_ = false, failed_ = false, begun_ = false, at_line_start_ = true;
};

}  // namespace

bool looks_like_code(const std::string& text) {
  constexpr std::string_view kStarts[] = {"import ", "from ", "class ", "def ", "@", "#", "\"\"\""};
  const std::string start = trimmed(text);
  return std::any_of(std::begin(kStarts), std::end(kStarts),
                     [&](std::string_view word) { return start.starts_with(word); });
}

bool is_complete_input(const std::string& text) {
  if (!looks_like_code(text)) return true;
  if (const size_t last = text.rfind('\n'); last != std::string::npos && trimmed(text.substr(last)) == ":end")
    return true;
  // An empty line after a module that has all its parts; two where it has not, so that what is missing can be told.
  const bool whole = text.find("class Model") != std::string::npos && has_line_starting(text, "def get_inputs") &&
                     has_line_starting(text, "def get_init_inputs");
  const std::string tail = text.size() > 2 ? text.substr(text.size() - (whole ? 1 : 3)) : text;
  return std::all_of(tail.begin(), tail.end(), [](char c) { return c == '\n'; });
}

int run_repl(const ReplOptions& options, Console& console) { return Repl(options, console).run(); }

}  // namespace kw::cli
