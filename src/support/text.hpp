// Small text helpers shared by printers and parsers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kw {

std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::vector<std::string> split_lines(std::string_view text);

// Shortest decimal that reads back as the same double, always with a point or exponent ("1.0", "1e-05", "inf", "nan").
std::string format_double(double value);

// A whole file. Throws kUser when it cannot be read or written.
std::string read_file(const std::string& path);
void write_file_atomically(const std::string& path, std::string_view content);

}  // namespace kw
