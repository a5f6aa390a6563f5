// What `--help` looks like: options by group, every text wrapped to the terminal's width.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace kw::cli {

// The groups of options, in the order in which help shows them.
inline constexpr const char* kInputOutput = "Input and output";
inline constexpr const char* kSearchAndTime = "Search and time";
inline constexpr const char* kVerification = "Verification";
inline constexpr const char* kLanguageModel = "Language model";
inline constexpr const char* kAnswers = "What the language model is asked";
inline constexpr const char* kCompiler = "For work on the compiler";
inline constexpr const char* kGeneral = "General";
inline constexpr const char* kHidden = "";

// $COLUMNS where it is set, the terminal's width where standard output is one, else 80.
int help_width();

// `text` in lines of at most `width` columns where its words allow that, all but the first behind `indent` spaces. The
// first begins at `column`.
std::string wrapped(std::string_view text, int width, int indent, int column = 0);

// Of a footer, a line that begins with "$ " is an example, and what follows " # " in it says what that does; any other
// line is a paragraph.
std::shared_ptr<CLI::FormatterBase> help_formatter(int width);

// "kw archive list"
std::string full_name(const CLI::App& command);

}  // namespace kw::cli
