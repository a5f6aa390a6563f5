#include "support/text_reader.hpp"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "support/error.hpp"

namespace kw {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

void TextReader::skip_space() {
  while (at_ < text_.size()) {
    if (text_[at_] == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
      ++at_;
    } else {
      return;
    }
  }
}

bool TextReader::at_end() {
  skip_space();
  return at_ >= text_.size();
}

char TextReader::peek() { return at_end() ? '\0' : text_[at_]; }

bool TextReader::next_is(std::string_view token) {
  skip_space();
  if (text_.substr(at_, token.size()) != token) return false;
  const size_t after = at_ + token.size();
  return !is_word(token.back()) || after >= text_.size() || !is_word(text_[after]);
}

bool TextReader::accept(std::string_view token) {
  if (!next_is(token)) return false;
  at_ += token.size();
  return true;
}

void TextReader::expect(std::string_view token) {
  if (!accept(token)) fail(fmt::format("expected '{}'", token));
}

bool TextReader::next_is_name() {
  const char c = peek();
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
}

std::string TextReader::name() {
  if (!next_is_name()) fail("expected a name");
  const size_t begin = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return std::string(text_.substr(begin, at_ - begin));
}

int64_t TextReader::integer() {
  skip_space();
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (problem == std::errc::result_out_of_range) fail("a whole number beyond 64 bits");
  if (problem != std::errc()) fail("expected a whole number");
  at_ = static_cast<size_t>(end - text_.data());
  return value;
}

double TextReader::number() {
  skip_space();
  const bool negative = accept("-");
  const double sign = negative ? -1.0 : 1.0;
  if (accept("inf")) return sign * std::numeric_limits<double>::infinity();
  if (accept("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (!std::isdigit(static_cast<unsigned char>(peek()))) fail("expected a number");
  // strtod reads hexadecimal fractions, and wants an end that it knows.
  size_t end = at_;
  while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.' ||
                                ((text_[end] == '-' || text_[end] == '+') &&
                                 (std::tolower(text_[end - 1]) == 'e' || std::tolower(text_[end - 1]) == 'p'))))
    ++end;
  const std::string digits(text_.substr(at_, end - at_));
  char* stopped = nullptr;
  const double value = std::strtod(digits.c_str(), &stopped);
  if (stopped == digits.c_str()) fail("expected a number");
  at_ += static_cast<size_t>(stopped - digits.c_str());
  if (at_ < text_.size() && is_word(text_[at_])) fail("expected the end of a number");
  return sign * value;
}

std::string TextReader::quoted() {
  const size_t begin = position();
  expect("\"");
  std::string result;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
    result += text_[at_++];
  }
  if (at_ >= text_.size()) fail_at(begin, "this quotation has no end");
  ++at_;
  return result;
}

size_t TextReader::position() {
  skip_space();
  return at_;
}

void TextReader::fail(const std::string& message) {
  skip_space();
  std::string found = "the end of the text";
  if (at_ < text_.size()) {
    size_t end = at_ + 1;
    if (is_word(text_[at_]))
      while (end < text_.size() && is_word(text_[end])) ++end;
    found = fmt::format("'{}'", text_.substr(at_, end - at_));
  }
  fail_at(at_, fmt::format("{}, found {}", message, found));
}

void TextReader::fail_at(size_t position, const std::string& message) const {
  size_t line = 1, start = 0;
  for (size_t i = 0; i < position && i < text_.size(); ++i)
    if (text_[i] == '\n') {
      ++line;
      start = i + 1;
    }
  const std::string_view rest = text_.substr(start);
  ErrorText text;
  text.message = fmt::format("{}: {}", what_, message);
  text.where = fmt::format("line {}, column {}", line, position - start + 1);
  text.source = std::string(rest.substr(0, rest.find('\n')));
  text.code = "bad-text";
  throw Error(ErrorKind::kUser, std::move(text));
}

}  // namespace kw
