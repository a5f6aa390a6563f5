#include "cli/line_editor.hpp"

#include <histedit.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace kw::cli {

namespace {

constexpr int kMostHistory = 1000;
// Keys that no terminal sends in one piece here: our own handlers hand on to libedit's by pushing them.
constexpr const char* kAccept = "\036";
constexpr const char* kOlder = "\034";
constexpr const char* kNewer = "\037";
constexpr const char* kPasteEnd = "\033[201~";

class PlainEditor : public LineEditor {
 public:
  explicit PlainEditor(EditorOptions options) : options_(std::move(options)) {}
  bool is_terminal() const override { return false; }

  Input read() override {
    Input input;
    for (std::string line; read_line(line);) {
      input.text += (input.text.empty() ? "" : "\n") + line;
      if (options_.is_complete(input.text)) return input;
    }
    if (interrupted()) input.kind = Input::Kind::kInterrupted;
    else if (input.text.empty()) input.kind = Input::Kind::kEnd;
    return input;
  }

 private:
  bool read_line(std::string& line) {
    line.clear();
    while (true) {
      if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
        line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        if (line.ends_with('\r')) line.pop_back();
        return true;
      }
      char bytes[4096];
      const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (count < 0 && errno == EINTR && !interrupted()) continue;
      if (count > 0) {
        buffer_.append(bytes, static_cast<size_t>(count));
        continue;
      }
      line = std::exchange(buffer_, "");
      return !line.empty();
    }
  }

  EditorOptions options_;
  std::string buffer_;
};

class TerminalEditor : public LineEditor {
 public:
  explicit TerminalEditor(EditorOptions options) : options_(std::move(options)) {
    if (const char* locale = std::setlocale(LC_CTYPE, ""); !locale || std::strcmp(locale, "C") == 0)
      std::setlocale(LC_CTYPE, "C.UTF-8");
    edit_ = el_init("kw", stdin, stdout, stderr);
    history_ = history_init();
    if (!edit_ || !history_)
      throw Error(ErrorKind::kMissing, "the terminal cannot be used for editing.", "TERM=dumb takes plain lines.");
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &TerminalEditor::prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 0);
    // Ctrl-C comes as a byte while a line is edited, and as a signal at all other times.
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    HistEvent event;
    history(history_, &event, H_SETSIZE, kMostHistory);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!options_.history.empty()) history(history_, &event, H_LOAD, options_.history.c_str());
    el_set(edit_, EL_HIST, history, history_);
    add("kw-enter", "ends the input, or begins another line", &TerminalEditor::enter, {"^M", "^J"});
    add("kw-cancel", "gives the line up", &TerminalEditor::cancel, {"^C"});
    add("kw-up", "the line above, or an older input", &TerminalEditor::up, {"\\e[A", "\\eOA", "^P"});
    add("kw-down", "the line below, or a newer input", &TerminalEditor::down, {"\\e[B", "\\eOB", "^N"});
    add("kw-home", "the start of the line", &TerminalEditor::home, {"\\e[H", "\\eOH", "\\e[1~", "^A"});
    add("kw-tail", "the end of the line", &TerminalEditor::tail, {"\\e[F", "\\eOF", "\\e[4~", "^E"});
    add("kw-paste", "takes what is pasted as it is", &TerminalEditor::paste, {"\\e[200~"});
    add("kw-complete", "completes a command or a file", &TerminalEditor::complete, {"^I"});
    for (const auto& [key, command] : {std::pair{kAccept, "ed-newline"},
                                       {kOlder, "ed-prev-history"},
                                       {kNewer, "ed-next-history"},
                                       {"^R", "em-inc-search-prev"},
                                       {"\\e[3~", "ed-delete-next-char"},
                                       {"\\e[C", "ed-next-char"},
                                       {"\\e[D", "ed-prev-char"}})
      el_set(edit_, EL_BIND, key, command, nullptr);
    add("kw-end", "leaves from an empty line, else deletes a character", &TerminalEditor::end, {"^D"});
  }

  ~TerminalEditor() override {
    history_end(history_);
    el_end(edit_);
  }

  bool is_terminal() const override { return true; }

  Input read() override {
    cancelled_ = ended_ = false;
    // Before the prompt shows: el_gets does it after, and what is typed at once would be echoed twice, a Ctrl-D lost.
    el_set(edit_, EL_PREP_TERM, 1);
    std::fputs("\033[?2004h", stdout);  // pastes come in brackets
    std::fflush(stdout);
    int count = 0;
    const char* line = el_gets(edit_, &count);
    std::fputs("\033[?2004l", stdout);
    std::fflush(stdout);
    if (cancelled_) {
      std::fputs("\n", stdout);
      return {Input::Kind::kInterrupted, given_up_};
    }
    if (!line || count <= 0 || ended_) {
      std::fputs("\n", stdout);
      return {Input::Kind::kEnd, ""};
    }
    std::string text(line, static_cast<size_t>(count));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    remember(text);
    return {Input::Kind::kText, std::move(text)};
  }

 private:
  using Handler = unsigned char (*)(EditLine*, int);

  void add(const char* name, const char* help, Handler handler, std::initializer_list<const char*> keys) {
    el_set(edit_, EL_ADDFN, name, help, handler);
    for (const char* key : keys) el_set(edit_, EL_BIND, key, name, nullptr);
  }

  static TerminalEditor& self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<TerminalEditor*>(data);
  }

  static char* prompt(EditLine* edit) { return const_cast<char*>(self(edit).options_.prompt.c_str()); }

  static std::string before(EditLine* edit) {
    const LineInfo* line = el_line(edit);
    return {line->buffer, line->cursor};
  }
  static std::string after(EditLine* edit) {
    const LineInfo* line = el_line(edit);
    return {line->cursor, line->lastchar};
  }
  // el_cursor counts characters, not bytes.
  static int characters(std::string_view text) {
    return static_cast<int>(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  }

  static unsigned char enter(EditLine* edit, int) {
    const std::string rest = after(edit);
    if (rest.find_first_not_of(" \t\n") != std::string::npos && (before(edit) + rest).find('\n') != std::string::npos)
      return insert(edit, "\n");  // in the middle of a text
    if (!self(edit).options_.is_complete(before(edit) + rest)) return insert(edit, "\n");
    el_push(edit, kAccept);
    return CC_NORM;
  }

  static unsigned char insert(EditLine* edit, const char* text) {
    return el_insertstr(edit, text) == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char cancel(EditLine* edit, int) {
    self(edit).cancelled_ = true;
    self(edit).given_up_ = before(edit) + after(edit);
    return CC_EOF;
  }

  static unsigned char end(EditLine* edit, int) {
    const std::string rest = after(edit);
    if (before(edit).empty() && rest.empty()) {
      self(edit).ended_ = true;
      return CC_EOF;
    }
    if (rest.empty()) return CC_ERROR;
    el_cursor(edit, 1);
    el_deletestr(edit, 1);
    return CC_REFRESH;
  }

  static unsigned char up(EditLine* edit, int) {
    const std::string text = before(edit);
    const size_t start = text.rfind('\n');
    if (start == std::string::npos) {
      el_push(edit, kOlder);
      return CC_NORM;
    }
    const int column = characters(std::string_view(text).substr(start + 1));
    const size_t above = start == 0 ? std::string::npos : text.rfind('\n', start - 1);
    const std::string line = text.substr(above == std::string::npos ? 0 : above + 1,
                                         start - (above == std::string::npos ? 0 : above + 1));
    el_cursor(edit, -(column + 1 + std::max(0, characters(line) - column)));
    return CC_REFRESH;
  }

  static unsigned char down(EditLine* edit, int) {
    const std::string text = before(edit), rest = after(edit);
    const size_t stop = rest.find('\n');
    if (stop == std::string::npos) {
      el_push(edit, kNewer);
      return CC_NORM;
    }
    const size_t start = text.rfind('\n');
    const int column = characters(std::string_view(text).substr(start == std::string::npos ? 0 : start + 1));
    const std::string line = rest.substr(stop + 1, rest.find('\n', stop + 1) == std::string::npos
                                                       ? std::string::npos
                                                       : rest.find('\n', stop + 1) - stop - 1);
    el_cursor(edit, characters(std::string_view(rest).substr(0, stop)) + 1 + std::min(column, characters(line)));
    return CC_REFRESH;
  }

  static unsigned char home(EditLine* edit, int) {
    const std::string text = before(edit);
    const size_t start = text.rfind('\n');
    el_cursor(edit, -characters(std::string_view(text).substr(start == std::string::npos ? 0 : start + 1)));
    return CC_REFRESH;
  }

  static unsigned char tail(EditLine* edit, int) {
    const std::string rest = after(edit);
    el_cursor(edit, characters(std::string_view(rest).substr(0, rest.find('\n'))));
    return CC_REFRESH;
  }

  static unsigned char paste(EditLine* edit, int) {
    std::string text;
    while (!text.ends_with(kPasteEnd)) {
      char c = 0;
      if (el_getc(edit, &c) != 1) break;
      if (c == '\t') text += "    ";
      else text += c == '\r' ? '\n' : c;
    }
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - std::strlen(kPasteEnd));
    return text.empty() ? static_cast<unsigned char>(CC_NORM) : insert(edit, text.c_str());
  }

  static unsigned char complete(EditLine* edit, int) {
    TerminalEditor& editor = self(edit);
    const std::string line = before(edit);
    if (!line.starts_with(':')) return insert(edit, "    ");
    const std::vector<std::string> found = editor.options_.completions ? editor.options_.completions(line)
                                                                       : std::vector<std::string>{};
    if (found.empty()) return CC_ERROR;
    const std::string word = line.substr(line.rfind(' ') == std::string::npos ? 0 : line.rfind(' ') + 1);
    std::string common = found.front();
    for (const std::string& one : found)
      common.resize(static_cast<size_t>(std::mismatch(common.begin(), common.end(), one.begin(), one.end()).first -
                                        common.begin()));
    if (found.size() == 1 && !common.ends_with('/')) common += " ";
    if (common.size() > word.size()) return insert(edit, common.substr(word.size()).c_str());
    std::fputs("\n", stdout);
    for (const std::string& one : found) std::fprintf(stdout, "%s  ", one.c_str());
    std::fputs("\n", stdout);
    return CC_REDISPLAY;
  }

  void remember(const std::string& text) {
    if (text.find_first_not_of(" \t\n") == std::string::npos) return;
    HistEvent event;
    history(history_, &event, H_ENTER, text.c_str());
    if (options_.history.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(options_.history).parent_path(), error);
    history(history_, &event, H_SAVE, options_.history.c_str());
  }

  EditorOptions options_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  std::string given_up_;
  bool cancelled_ = false, ended_ = false;
};

}  // namespace

std::unique_ptr<LineEditor> open_editor(EditorOptions options) {
  const char* terminal = std::getenv("TERM");
  if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && terminal && std::strcmp(terminal, "dumb") != 0)
    return std::make_unique<TerminalEditor>(std::move(options));
  return std::make_unique<PlainEditor>(std::move(options));
}

}  // namespace kw::cli
