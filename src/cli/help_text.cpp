#include "cli/help_text.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>

namespace kw::cli {

namespace {

constexpr int kNarrowest = 40;        // what is narrower cannot be read anyway
constexpr int kWidestLabel = 30;      // a longer one has its text on the next line
constexpr int kWidthForColumns = 60;  // below, every text is on its own lines

constexpr std::array kGroups = {kInputOutput, kSearchAndTime, kVerification, kLanguageModel,
                                kAnswers,     kCompiler,      kGeneral};

// Of UTF-8 text without wide characters.
int columns_of(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

struct Row {
  std::string label, text;
};

std::string table_text(const std::string& title, const std::vector<Row>& rows, int width) {
  if (rows.empty()) return "";
  int column = 0;
  for (const Row& row : rows)
    if (columns_of(row.label) <= kWidestLabel) column = std::max(column, columns_of(row.label) + 4);
  const bool in_columns = width >= kWidthForColumns && column > 0;
  if (!in_columns) column = 6;
  std::string text = "\n" + title + ":\n";
  for (const Row& row : rows) {
    std::string line = "  " + row.label;
    if (in_columns && columns_of(line) + 2 <= column) line += std::string(column - columns_of(line), ' ');
    else line += "\n" + std::string(column, ' ');
    text += line + wrapped(row.text, width, column, column) + "\n";
  }
  return text;
}

// CLI11 appends what its checks allow, behind a colon.
std::string value_name(const CLI::Option& option) {
  const std::string name = option.get_type_name(), own = name.substr(0, name.find(':'));
  return own.empty() || option.get_type_size() == 0 ? "" : " " + own;
}

std::string label_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true, false);
  std::string names;
  for (const std::string& name : option.get_snames()) names += "-" + name + ", ";
  for (const std::string& name : option.get_lnames()) names += "--" + name + ", ";
  return names.substr(0, names.size() - 2) + value_name(option);
}

std::string text_of(const CLI::Option& option) {
  std::string text = option.get_description();
  if (option.get_required()) text += " (required)";
  else if (!option.get_default_str().empty()) text += " (default: " + option.get_default_str() + ")";
  return text;
}

std::vector<Row> arguments_of(const CLI::App& app) {
  std::vector<Row> rows;
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional()) rows.push_back({label_of(*option), text_of(*option)});
  return rows;
}

// With those of the command above whose options may follow this one.
std::vector<Row> options_of(const CLI::App& app, const std::string& group) {
  std::vector<const CLI::Option*> options = app.get_options();
  if (app.get_fallthrough())
    for (const CLI::Option* option : app.get_parent()->get_options())
      if (option != app.get_parent()->get_help_ptr()) options.push_back(option);
  std::vector<Row> rows;
  for (const CLI::Option* option : options)
    if (!option->get_positional() && option->get_group() == group)
      rows.push_back({label_of(*option), text_of(*option)});
  return rows;
}

// The known ones in their order, then any other.
std::vector<std::string> groups_of(const CLI::App& app) {
  std::vector<std::string> groups(kGroups.begin(), kGroups.end());
  for (const std::string& group : app.get_groups())
    if (group != kHidden && std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  return groups;
}

std::vector<Row> commands_of(const CLI::App& app) {
  std::vector<Row> rows;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) { return sub->get_group() != kHidden; }))
    rows.push_back({command->get_name(), command->get_description()});
  return rows;
}

std::string usage(const CLI::App& app) {
  std::string text = "Usage: " + full_name(app) + " [OPTIONS]";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true, false) + (option->get_expected_max() > 1 ? "..." : "");
    text += option->get_required() ? " " + name : " [" + name + "]";
  }
  return text + (commands_of(app).empty() ? "" : " COMMAND");
}

std::string example_text(const std::string& line, int width) {
  const size_t comment = line.find(" # ");
  std::string text = "  " + line.substr(2, comment == std::string::npos ? comment : comment - 2) + "\n";
  if (comment != std::string::npos) text += "      " + wrapped(line.substr(comment + 3), width, 6, 6) + "\n";
  return text;
}

std::string footer_text(const std::string& footer, int width) {
  std::string paragraphs, examples;
  size_t count = 0;
  for (size_t begin = 0; begin < footer.size();) {
    const size_t end = std::min(footer.find('\n', begin), footer.size());
    const std::string line = footer.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with("$ ")) {
      paragraphs += "\n" + wrapped(line, width, 0) + "\n";
      continue;
    }
    examples += example_text(line, width);
    ++count;
  }
  if (count == 0) return paragraphs;
  return paragraphs + (count == 1 ? "\nExample:\n" : "\nExamples:\n") + examples;
}

class HelpFormatter : public CLI::FormatterBase {
 public:
  explicit HelpFormatter(int width) : width_(width) {}

  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    std::string text = wrapped(app->get_description() + ".", width_, 0) + "\n\n";
    text += wrapped(usage(*app), width_, 7) + "\n";
    text += table_text("Arguments", arguments_of(*app), width_) + table_text("Commands", commands_of(*app), width_);
    for (const std::string& group : groups_of(*app)) text += table_text(group, options_of(*app, group), width_);
    return text + footer_text(app->get_footer(), width_);
  }

 private:
  int width_;
};

}  // namespace

int help_width() {
  int width = 0;
  if (const char* columns = std::getenv("COLUMNS")) width = std::atoi(columns);
  winsize size{};
  if (width <= 0 && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  return width > 0 ? std::max(width, kNarrowest) : 80;
}

std::string wrapped(std::string_view text, int width, int indent, int column) {
  std::string lines;
  bool at_start = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    if (!at_start && column + 1 + columns_of(word) > width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!at_start) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += columns_of(word);
    at_start = false;
  }
  return lines;
}

std::shared_ptr<CLI::FormatterBase> help_formatter(int width) { return std::make_shared<HelpFormatter>(width); }

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent ? full_name(*parent) + " " + command.get_name() : command.get_name();
}

}  // namespace kw::cli
